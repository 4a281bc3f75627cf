"""Running many cases of one role, and counting what was tried."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import mutations
from against_client import ClientCase, cases as client_cases, run as run_against_client
from against_server import ServerCase, cases as server_cases, run as run_against_server
from checks import Failed
from hypothesis import HealthCheck, Phase, given, seed, settings

Case = ServerCase | ClientCase

ROLES: dict[str, tuple[Any, Callable[[Any], None]]] = {
    "server": (server_cases(), run_against_server),
    "client": (client_cases(), run_against_client),
}
BATCH = 100
"""Cases between two looks at the clock."""
CASE_SECONDS = 120
"""No case takes that long, unless the event loop never comes back."""


@dataclass
class Tally:
    """What was tried."""

    cases: int = 0
    messages: int = 0
    wires: Counter[str] = field(default_factory=Counter)
    mutations: Counter[str] = field(default_factory=Counter)

    def note(self, case: Case) -> None:
        self.cases += 1
        self.messages += len(case.steps if isinstance(case, ServerCase) else case.replies)
        self.wires[case.wire] += 1

    def __str__(self) -> str:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted((self.wires + self.mutations).items()))
        return f"{self.cases} cases, {self.messages} messages ({kinds})"


def run(case: Case) -> None:
    """Run one case of either role; raise what it breaks."""
    role = "server" if isinstance(case, ServerCase) else "client"
    with bounded():
        ROLES[role][1](case)


def fuzz(role: str, first_seed: int, seconds: float) -> Tally:
    """Try cases for `seconds`, and one batch at least; raise the first failure, in its smallest form."""
    tally, until, batch = Tally(), time.monotonic() + seconds, first_seed
    before = mutations.TRIED.copy()
    while True:
        run_batch(role, batch, tally)
        batch += 1
        if time.monotonic() >= until:
            tally.mutations = mutations.TRIED - before
            return tally


def run_batch(role: str, number: int, tally: Tally) -> None:
    @seed(number)
    @settings(
        max_examples=BATCH,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=ROLES[role][0])
    def try_case(case: Case) -> None:
        tally.note(case)
        run(case)

    try_case()


@contextmanager
def bounded() -> Iterator[None]:
    """Raise `Failed` in a case that blocks the event loop: no timeout of the case itself can end it."""

    def stop(*_: object) -> None:
        raise Failed(f"the case did not end within {CASE_SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(CASE_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
