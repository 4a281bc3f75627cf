"""The look-ups of a SQLite store: those that wait at the same time share one turn of the reader's thread.

A turn of a thread costs more than a look-up. With one for each, a few thousand look-ups at once would wait longer than the time
that a store has to answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio
from outcome import Error, Outcome, capture

from ..storage import StoreError

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

MOST_AT_ONCE: Final = 100
"""Look-ups of one turn of the thread: the next ones should not wait long for it."""


@dataclass(slots=True, eq=False)
class LookUp:
    """A look-up that waits for its turn."""

    run: Callable[[], object]
    done: trio.Event = field(default_factory=trio.Event)
    outcome: Outcome[object] | None = None

    def settle(self, outcome: Outcome[object]) -> None:
        self.outcome = outcome
        self.done.set()


@dataclass(slots=True, eq=False)
class Reads:
    """The reader of one file, and what waits for it."""

    reader: sqlite3.Connection
    _thread: trio.CapacityLimiter = field(default_factory=lambda: trio.CapacityLimiter(1))
    _waiting: deque[LookUp] = field(default_factory=deque[LookUp])
    _running: Sequence[LookUp] = ()
    _asked: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)
    _is_stopped: bool = False

    async def look_up(self, query: Callable[..., T], *args: object) -> T:
        """Return what a query returns for the reader and these arguments, or raise what it raises.

        A cancel ends the wait; a reader that hangs, on a file of a network say, keeps the one thread.
        """
        run = partial(query, self.reader, *args)
        look_up = LookUp(run)
        self._waiting.append(look_up)
        self._asked.unpark()
        try:
            await look_up.done.wait()
        except trio.Cancelled:
            # Nobody wants it any more.
            look_up.run = nothing
            raise
        outcome = look_up.outcome
        assert outcome is not None
        if isinstance(outcome, Error):
            raise outcome.error.with_traceback(None)
        return outcome.unwrap()  # type: ignore[return-value]

    async def run(self) -> None:
        """Look up what waits, again and again; ends after `stop`, when nothing waits."""
        while self._waiting or not self._is_stopped:
            if not self._waiting:
                await self._asked.park()
                continue
            self._running = [self._waiting.popleft() for _ in range(min(MOST_AT_ONCE, len(self._waiting)))]
            runs = [look_up.run for look_up in self._running]
            outcomes = await trio.to_thread.run_sync(run_all, runs, limiter=self._thread, abandon_on_cancel=True)
            for look_up, outcome in zip(self._running, outcomes, strict=True):
                look_up.settle(outcome)
            self._running = ()

    def stop(self) -> None:
        """Let `run` end when nothing waits any more."""
        self._is_stopped = True
        self._asked.unpark_all()

    async def close(self, error: StoreError) -> None:
        """Close the reader, when `run` has ended; what still waits gets this error."""
        for look_up in (*self._running, *self._waiting):
            look_up.settle(Error(error))
        # A look-up that nobody waits for any more would keep it.
        self.reader.interrupt()
        async with self._thread:
            self.reader.close()


def run_all(runs: Sequence[Callable[[], object]]) -> list[Outcome[object]]:
    """Run look-ups in the thread of the reader."""
    return [capture(run) for run in runs]


def nothing() -> None:
    """The look-up of a caller that has gone."""
