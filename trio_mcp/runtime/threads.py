"""A limited number of threads for plain functions.

A cancel ends the wait for a thread, but the thread itself cannot be stopped: it is *abandoned*. It counts against the limit until
its function returns, since it still costs the same. If abandoned threads hold the whole limit, perhaps none of them will ever
return. Then new calls are refused, and so are those that wait for a thread.
"""

# A job ends on two sides that do not know of each other: the task may be cancelled in the same moment in which the function
# returns. `Job._lock` decides which came first, so that each abandoned thread is counted up once and down once:
#
#   first                second               counted as abandoned
#   function returns     task leaves          never
#   task leaves          function returns     from the first to the second
#   task leaves          thread would start   never: the function is not called

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar, cast

import trio

from ..errors import LimitExceeded

T = TypeVar("T")


class ThreadStatistics(NamedTuple):
    """Numbers of threads that run a function, of those among them that were abandoned, and of calls that wait for a thread."""

    running: int
    abandoned: int
    waiting: int
    limit: int


class ThreadLimiter:
    """Runs plain functions in a limited number of threads. May be made before Trio runs; must be used from one loop at a time."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._limiter = trio.CapacityLimiter(limit)
        self._loop: trio.lowlevel.TrioToken | None = None
        self._jobs: set[Job] = set()
        """Those that a task waits for."""
        self._abandoned = 0
        self._lock = threading.Lock()

    def admit(self) -> None:
        """Raise `LimitExceeded` if abandoned threads hold the whole limit."""
        if self._abandoned >= self._limit:
            raise self._refusal()

    async def run(self, fn: Callable[[], T]) -> T:
        """Call `fn()` in a thread, in which `trio.from_thread` works, and return its value.

        A cancel abandons the thread: it continues, and its result is dropped. If it has not started yet, `fn` is never called.

        Raises:
            LimitExceeded: abandoned threads hold the whole limit.
        """
        self.admit()
        limiter = self._limiter_here()
        job = Job(fn, self._on_thread_returned)
        self._jobs.add(job)
        with job.scope:
            try:
                return cast("T", await trio.to_thread.run_sync(job, abandon_on_cancel=True, limiter=limiter))
            finally:
                self._jobs.discard(job)
                if job.abandon():
                    self._count_abandoned()
        # Only `_count_abandoned` cancels the scope of a job, so this is not a cancel from outside.
        raise self._refusal()

    def statistics(self) -> ThreadStatistics:
        limiter, abandoned = self._limiter_here().statistics(), self._abandoned
        # A thread that outlives its loop is in `abandoned` but not in the limiter of the new loop.
        return ThreadStatistics(max(limiter.borrowed_tokens, abandoned), abandoned, limiter.tasks_waiting, self._limit)

    def _limiter_here(self) -> trio.CapacityLimiter:
        """Return the limiter of the loop that runs now."""
        # A thread that outlives its loop cannot return its token, so the next loop needs a new limiter.
        if trio.lowlevel.in_trio_run():
            loop = trio.lowlevel.current_trio_token()
            if self._loop is not loop:
                self._loop, self._limiter = loop, trio.CapacityLimiter(self._limit)
        return self._limiter

    def _count_abandoned(self) -> None:
        """Count one more abandoned thread. If they now hold the whole limit, refuse the jobs that wait."""
        # A lock although the loop is one thread: the threads themselves count down.
        with self._lock:
            self._abandoned += 1
        if self._abandoned >= self._limit:
            for waiting in self._jobs:
                waiting.scope.cancel()

    def _on_thread_returned(self) -> None:
        """Count one abandoned thread less; called in that thread."""
        with self._lock:
            self._abandoned -= 1

    def _refusal(self) -> LimitExceeded:
        return LimitExceeded(
            f"no thread is free: this server's limit is {self._limit} threads, and {self._abandoned} of them are abandoned "
            "(their calls were cancelled, and their functions have not returned)"
        )

    def __repr__(self) -> str:
        return f"<ThreadLimiter {self.statistics()}>"


class Job:
    """One call of a function in a thread, and whether a task still waits for it."""

    __slots__ = ("_fn", "_lock", "_on_return", "_pid", "_running", "_wanted", "scope")

    def __init__(self, fn: Callable[[], object], on_return: Callable[[], None]) -> None:
        self._fn = fn
        self._on_return = on_return
        self.scope = trio.CancelScope()
        """Cancelled if no thread will become free."""
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._running = False
        self._wanted = True

    def __call__(self) -> object:
        """Call the function; called in the thread."""
        with self._lock:
            if not self._wanted:
                return None
            self._running = True
        try:
            return self._fn()
        finally:
            # The function has forked, and the child returned from it: a copy of the process that has no loop to return to.
            if os.getpid() != self._pid:
                os._exit(1)
            with self._lock:
                self._running = False
                abandoned = not self._wanted
            if abandoned:
                self._on_return()

    def abandon(self) -> bool:
        """Note that the task no longer waits, with a value or without; return whether the function still runs."""
        with self._lock:
            self._wanted = False
            return self._running


def total_statistics(limiters: Iterable[ThreadLimiter]) -> ThreadStatistics:
    """Return the numbers of several limiters together."""
    return ThreadStatistics(*map(sum, zip(*(limiter.statistics() for limiter in limiters), strict=True)))
