"""Threads for plain functions. A cancel frees whoever waits for one; the thread itself cannot be stopped, so it is abandoned.

An abandoned thread keeps its place until its function returns, since it still costs what it cost. When all places are held by
abandoned threads nothing says that one will ever be free again: then whoever wants a thread is refused, and so are those who
wait for one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

import trio

from ..errors import LimitExceeded

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ThreadStatistics:
    """Threads that run a function now, those among them that were abandoned, and calls that wait for a thread."""

    running: int
    abandoned: int
    waiting: int
    limit: int


class Threads:
    """A number of places in which plain functions run. It may be made before Trio runs, and is used from one loop at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._places = trio.CapacityLimiter(limit)
        self._loop: trio.lowlevel.TrioToken | None = None
        self._jobs: set[Job] = set()
        """Those that somebody waits for."""
        self._abandoned = 0
        self._lock = threading.Lock()

    def admit(self) -> None:
        """Raise `LimitExceeded` when every place is held by an abandoned thread."""
        if self._abandoned >= self._limit:
            raise self._refusal()

    async def run(self, fn: Callable[[], T]) -> T:
        """Call `fn()` in a thread, in which `trio.from_thread` works, and return its value.

        A cancel abandons the thread: it goes on, and what comes of it is dropped. A function that waited for its thread is not
        called at all.

        Raises:
            LimitExceeded: every place is held by an abandoned thread.
        """
        self.admit()
        places = self._places_here()
        job = Job(fn, self._returned)
        self._jobs.add(job)
        with job.scope:
            try:
                return cast("T", await trio.to_thread.run_sync(job, abandon_on_cancel=True, limiter=places))
            finally:
                self._jobs.discard(job)
                if job.leave():
                    self._abandon()
        raise self._refusal()

    def statistics(self) -> ThreadStatistics:
        places, abandoned = self._places_here().statistics(), self._abandoned
        return ThreadStatistics(max(places.borrowed_tokens, abandoned), abandoned, places.tasks_waiting, self._limit)

    def _places_here(self) -> trio.CapacityLimiter:
        """The places of the loop that runs now. A thread that outlives its loop can give its place back to nobody there."""
        if trio.lowlevel.in_trio_run():
            loop = trio.lowlevel.current_trio_token()
            if self._loop is not loop:
                self._loop, self._places = loop, trio.CapacityLimiter(self._limit)
        return self._places

    def _abandon(self) -> None:
        """One more thread runs for nobody. If it has the last place, those who wait for one are refused."""
        with self._lock:
            self._abandoned += 1
        if self._abandoned >= self._limit:
            for waiting in self._jobs:
                waiting.scope.cancel()

    def _returned(self) -> None:
        """An abandoned thread has ended; called in it."""
        with self._lock:
            self._abandoned -= 1

    def _refusal(self) -> LimitExceeded:
        return LimitExceeded(
            f"{self._limit} threads are held by calls that were cancelled and have not returned, which is this server's limit"
        )

    def __repr__(self) -> str:
        return f"<Threads {self.statistics()}>"


class Job:
    """One call of a function in a thread, and whether anybody still waits for it. Both sides of it may end at the same moment."""

    __slots__ = ("_fn", "_lock", "_on_return", "_pid", "_running", "_wanted", "scope")

    def __init__(self, fn: Callable[[], object], on_return: Callable[[], None]) -> None:
        self.scope = trio.CancelScope()
        """Cancelled when no thread is to be had."""
        self._fn = fn
        self._on_return = on_return
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._running = False
        self._wanted = True

    def __call__(self) -> object:
        """The thread's side."""
        with self._lock:
            if not self._wanted:
                return None
            self._running = True
        try:
            return self._fn()
        finally:
            if os.getpid() != self._pid:  # it forked and came back: this copy of the process has no loop to return to
                os._exit(1)
            with self._lock:
                self._running = False
                abandoned = not self._wanted
            if abandoned:
                self._on_return()

    def leave(self) -> bool:
        """Whoever waited goes on, with the value or without; True when the function still runs."""
        with self._lock:
            self._wanted = False
            return self._running
