"""One run of chaos after the other, each with its seed; the first that breaks a promise prints what is needed to run it again."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom
from typing import Final

import pytest
import trio

from chaos.operations import KINDS, Operation
from chaos.stores import STORES, InFile
from chaos.world import BrokenPromises, World

RUN_SECONDS: Final = 15.0
"""Seconds of faults in one run. It takes some more until all operations have ended."""

LONG: Final = 1800.0
"""Seconds in which some process that is stopped has to be buried."""

MINUTE: Final = 60.0
"""Seconds in which some operations of each kind have to succeed."""


def runs(folder: Path, config: pytest.Config, store: str, seconds: float) -> None:
    """Run on the store of this name for about `seconds`, or the time of the option, and print how the operations ended."""
    seconds = config.getoption("--chaos-seconds") or seconds
    seed = config.getoption("--chaos-seed")
    seed = SystemRandom().randrange(2**32) if seed is None else seed
    end, ends, results = time.monotonic() + seconds, Counter[str](), set[type[Operation]]()
    burials = 0
    # The rest of a run is none.
    while (left := end - time.monotonic()) > 0.1 * RUN_SECONDS:
        home = folder / str(seed)
        home.mkdir()
        kept = STORES[store](home)
        world = World(home, seed, kept)
        try:
            with kept.running():
                trio.run(world.run, min(RUN_SECONDS, left))
        except BrokenPromises as broken:
            pytest.fail(f"{broken}\n\nthe logs are in {home}; again: --chaos-seed {seed}", pytrace=False)
        ends += world.ends
        results |= world.results
        burials += world.burials
        shutil.rmtree(home)
        seed += 1
    print(f"{burials:6} processes were buried while they lived")
    print("\n".join(f"{count:6} {end}" for end, count in sorted(ends.items())))
    without = {kind.kind for kind in KINDS if kind not in results}
    assert results, "no operation has had a result"
    assert burials or seconds < LONG or store == InFile.name, "no process that was stopped has been buried"
    assert not without or seconds < MINUTE, f"no operation of these kinds has had a result: {without}"
