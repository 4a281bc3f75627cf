"""When Python's garbage collector looks through what is loaded: never while it is loaded, and not again while a server runs."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

THRESHOLD: Final = 10_000
"""New objects after which the garbage collector of a server scans the youngest generation."""
# Python's default is 700 or 2,000. A call makes about sixty objects that the collector tracks, and reference counting frees
# nearly all of them when it ends, so that a scan after every few calls finds nothing.


@contextmanager
def no_collection() -> Generator[None]:
    """Load modules in the block without a collection: that makes a hundred thousand objects and hardly any garbage."""
    # To look for it would take a tenth of the start.
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            # All objects are old now, as after the collections that they would have outlived. But not if the program has frozen
            # some, which this would thaw.
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def settle_for_server() -> None:
    """Prepare for serving, in a process that exists for it: what is loaded now is never scanned again."""
    # Modules and tools live as long as the process. Only what is young is collected first: to look through everything takes a
    # tenth of the start, and finds little but what loading classes leaves behind.
    gc.collect(1)
    gc.freeze()
    gc.set_threshold(THRESHOLD)
