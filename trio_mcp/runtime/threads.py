"""A limited number of threads for plain functions.

A cancel ends the wait for a thread, but the thread itself cannot be stopped: it is *abandoned*. It counts against the limit until
its function returns, since it still costs the same. If abandoned threads hold the whole limit, or all that a caller may have,
perhaps none of them will ever return. Then new calls are refused, and so are those that wait for a thread.
"""

# A job ends on two sides that do not know of each other: the task may be cancelled in the same moment in which the function
# returns. `Job._lock` decides which came first, so that each abandoned thread is counted up once and down once:
#
#   first                second               counted as abandoned
#   function returns     task leaves          never
#   task leaves          function returns     from the first to the second
#   task leaves          thread would start   never: the function is not called

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Awaitable, Callable, Hashable, Iterable
from functools import partial
from typing import TypeVar, cast

import trio

from ..base import forks
from ..base.named_tuples import NamedTuple
from ..base.shared_limits import THREADS, SharedLimit
from ..errors import Disconnected, LimitExceeded
from .quota import Quota, add_to

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
        self._limiter = FairLimiter(THREADS, limit)
        self._abandoned_of: dict[Hashable | None, int] = {}
        """How many of the loop's threads that are abandoned each caller holds."""
        self._loop: trio.lowlevel.TrioToken | None = None
        self._jobs: set[Job] = set()
        """Those that a task waits for."""
        self._abandoned = 0
        self._lock = threading.Lock()

    def admit(self) -> None:
        """Raise `LimitExceeded` if abandoned threads hold the whole limit."""
        if self._abandoned >= self._limit:
            raise self._refusal(None)

    async def run(self, fn: Callable[[], T], caller: Hashable | None = None) -> T:
        """Call `fn()` in a thread, in which `trio.from_thread` works, and return its value.

        A cancel abandons the thread: it continues, and its result is dropped. If it has not started yet, `fn` is never called.

        Args:
            caller: whose thread it is. Over half of the limit, one that has a quarter waits for its own; see `FairLimiter`.

        Raises:
            LimitExceeded: abandoned threads hold the whole limit, or all that the caller may have.
        """
        limiter = self._limiter_here()
        if self._is_refused(caller):
            raise self._refusal(caller)
        share = ThreadShare(limiter, self._abandoned_of, caller)
        job = Job(fn, self._on_thread_returned, caller)
        self._jobs.add(job)
        with job.scope:
            try:
                return cast(
                    "T",
                    await trio.to_thread.run_sync(
                        job, abandon_on_cancel=True, limiter=cast("trio.CapacityLimiter", share)
                    ),
                )
            finally:
                self._jobs.discard(job)
                if job.abandon():
                    share.abandon()
                    self._count_abandoned(caller)
        # Only `_count_abandoned` cancels the scope of a job, so this is not a cancel from outside.
        raise self._refusal(caller)

    def statistics(self) -> ThreadStatistics:
        limiter, abandoned = self._limiter_here(), self._abandoned
        # A thread that outlives its loop is in `abandoned` but not in the limiter of the new loop.
        return ThreadStatistics(max(limiter.held.in_use, abandoned), abandoned, limiter.waiting, self._limit)

    def _limiter_here(self) -> FairLimiter:
        """Return the limiter of the loop that runs now."""
        if trio.lowlevel.in_trio_run():
            loop = trio.lowlevel.current_trio_token()
            if self._loop is not loop:
                self._loop = loop
                # A thread that outlives its loop cannot return its token, so the next loop needs a new limiter.
                if self._limiter.held.in_use:
                    self._limiter, self._abandoned_of = FairLimiter(THREADS, self._limit), {}
        return self._limiter

    def _count_abandoned(self, caller: Hashable | None) -> None:
        """Count one more abandoned thread, and refuse the jobs that wait for no other ones now."""
        # A lock although the loop is one thread: the threads themselves count down.
        with self._lock:
            self._abandoned += 1
        if self._is_refused(caller):
            # Then none of these runs.
            is_whole = self._abandoned >= self._limit
            for job in self._jobs:
                if is_whole or job.caller == caller:
                    job.scope.cancel()

    def _is_refused(self, caller: Hashable | None) -> bool:
        """Return whether abandoned threads hold the whole limit, or all that a caller may have."""
        if self._abandoned >= self._limit:
            return True
        abandoned = self._abandoned_of.get(caller, 0)
        return abandoned > 0 and abandoned == self._limiter.held.held(caller) and not self._limiter.has_room(caller)

    def _on_thread_returned(self) -> None:
        """Count one abandoned thread less; called in that thread."""
        with self._lock:
            self._abandoned -= 1

    def _refusal(self, caller: Hashable | None) -> LimitExceeded:
        if self._abandoned < self._limit and (refusal := self._limiter.held.refusal(caller)) is not None:
            return LimitExceeded(
                f"no thread is free: {refusal}; all of yours are abandoned (their calls were cancelled, and their functions have "
                "not returned)"
            )
        return LimitExceeded(
            f"no thread is free: this server's limit is {self._limit} threads, and {self._abandoned} of them are abandoned "
            "(their calls were cancelled, and their functions have not returned)"
        )

    def __repr__(self) -> str:
        return f"<ThreadLimiter {self.statistics()}>"


class ThreadShare:
    """The limiter that `trio.to_thread` takes for one thread: it counts for its caller until its function returns."""

    __slots__ = ("abandoned_of", "caller", "is_abandoned", "limiter")

    def __init__(self, limiter: FairLimiter, abandoned_of: dict[Hashable | None, int], caller: Hashable | None) -> None:
        self.limiter = limiter
        self.abandoned_of = abandoned_of
        self.caller = caller
        self.is_abandoned = False

    async def acquire_on_behalf_of(self, _borrower: object) -> None:
        """Take a thread, or wait for one."""
        await self.limiter.acquire(self.caller)

    def release_on_behalf_of(self, _borrower: object) -> None:
        """Give the thread back; called in the loop."""
        if self.is_abandoned:
            add_to(self.abandoned_of, self.caller, -1)
        self.limiter.release(self.caller)

    def abandon(self) -> None:
        """Count the thread as abandoned until it is given back."""
        self.is_abandoned = True
        add_to(self.abandoned_of, self.caller, 1)


class Job:
    """One call of a function in a thread, and whether a task still waits for it."""

    __slots__ = ("_fn", "_generation", "_lock", "_on_return", "_running", "_scopes", "_wanted", "caller", "scope")

    def __init__(self, fn: Callable[[], object], on_return: Callable[[], None], caller: Hashable | None = None) -> None:
        self._fn = fn
        self.caller = caller
        self._on_return = on_return
        self.scope = trio.CancelScope()
        """Cancelled if no thread will become free."""
        self._lock = threading.Lock()
        self._generation = forks.generation
        self._running = False
        self._wanted = True
        self._scopes: tuple[trio.CancelScope, ...] = ()
        """Of what the function waits for on the loop; nearly always one, or none."""

    def __call__(self) -> object:
        """Call the function; called in the thread."""
        with self._lock:
            if not self._wanted:
                return None
            self._running = True
        _here.job = self
        try:
            return self._fn()
        finally:
            _here.job = None
            # The function has forked, and the child returned from it: a copy of the process that has no loop to return to.
            if forks.generation != self._generation:
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
            running = self._running
        for scope in self._scopes:
            scope.cancel()
        return running

    async def wait_on_loop(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Await `fn()` for the function, and cancel it when the task no longer waits for the function."""
        with trio.CancelScope() as scope:
            if not self._wanted:
                scope.cancel()
            self._scopes = (*self._scopes, scope)
            try:
                return await fn()
            finally:
                self._scopes = tuple(each for each in self._scopes if each is not scope)
        raise Disconnected("the call was cancelled, and its function runs on in an abandoned thread")


class Here(threading.local):
    """What runs in this thread."""

    job: Job | None = None


_here = Here()


def await_on_loop(fn: Callable[[], Awaitable[T]], name: str) -> T:
    """Await `fn()` on the loop, from a thread that was started there, and return its value.

    Args:
        name: how the author has written the call, for the error.

    Raises:
        trio.Cancelled: the task that waits for this thread was cancelled, and `fn` with it.
        RuntimeError: Trio has not started this thread, so that it belongs to no task.
    """
    try:
        trio.from_thread.check_cancelled()
    except RuntimeError:
        raise RuntimeError(
            f"{name} was called in a thread that Trio did not start: call it where the tool itself runs, such as in its loop "
            "over the results of a pool, or start the thread with trio.to_thread.run_sync"
        ) from None
    job = _here.job
    try:
        # A thread of `ThreadLimiter` may be abandoned, and Trio then runs `fn` outside of every scope of the call.
        return trio.from_thread.run(fn if job is None else partial(job.wait_on_loop, fn))
    except Exception:
        # What fails because of the cancel is the cancel.
        trio.from_thread.check_cancelled()
        raise


def total_statistics(limiters: Iterable[ThreadLimiter]) -> ThreadStatistics:
    """Return the numbers of several limiters together."""
    return ThreadStatistics(*map(sum, zip(*(limiter.statistics() for limiter in limiters), strict=True)))


# A limited number of places for which callers wait: who waits longest is next, unless it has its share.


class Waiter:
    """One that waits for a place.

    Attributes:
        turn: the lowest is next; the first part is 0 for one that waits ahead of others.
    """

    __slots__ = ("caller", "lot", "turn")

    def __init__(self, caller: Hashable | None, turn: tuple[int, int]) -> None:
        self.caller = caller
        self.turn = turn
        self.lot = trio.lowlevel.ParkingLot()


class FairLimiter:
    """Places that callers share, and those that wait for one.

    Args:
        what: is limited.
        limit: how many there are.
        queue: counts those that wait, except ahead of others; None for no count. Those that wait check it.

    Attributes:
        held: the places in use.
    """

    def __init__(self, what: SharedLimit, limit: int, queue: Quota | None = None) -> None:
        self.held = Quota(what, limit)
        self._queue = queue
        self._waiting: dict[tuple[Hashable | None, int], dict[Waiter, None]] = {}
        """By caller and the first part of the turn: a caller over its share may have thousands, and they cost no search."""
        self._numbers = itertools.count()

    def has_room(self, caller: Hashable | None) -> bool:
        """Return whether a caller would get a place at once. Then it has none that waits."""
        return self.held.in_use < self.held.limit and not self.held.is_over_share(caller, 1)

    async def acquire(self, caller: Hashable | None, *, ahead: bool = False) -> None:
        """Take a place, or wait for one. A cancel leaves none taken.

        Args:
            ahead: wait ahead of those that do not.
        """
        if self.has_room(caller):
            self.held.add(caller)
            return
        waiter = Waiter(caller, (0 if ahead else 1, next(self._numbers)))
        self._waiting.setdefault((caller, waiter.turn[0]), {})[waiter] = None
        if self._queue is not None and not ahead:
            self._queue.add(caller)
        try:
            # Who unparks has counted the place already: a task that is unparked is not cancelled here any more.
            await waiter.lot.park()
        finally:
            self._forget(waiter)

    def add(self, caller: Hashable | None) -> None:
        """Take a place, over the limit and the share if need be."""
        self.held.add(caller)

    def release(self, caller: Hashable | None) -> None:
        """Give a place back, and hand over what others may have now."""
        self.held.give_back(caller)
        # More than one, if this caller had its share: less than half in use is room for one, its own share for another.
        while self._waiting and (waiter := self._next()) is not None:
            self.held.add(waiter.caller)
            self._forget(waiter)
            waiter.lot.unpark()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return sum(map(len, self._waiting.values()))

    def _next(self) -> Waiter | None:
        """Return who has waited longest of those whose callers have room."""
        ready = (next(iter(found)) for (caller, _), found in self._waiting.items() if self.has_room(caller))
        return min(ready, key=lambda waiter: waiter.turn, default=None)

    def _forget(self, waiter: Waiter) -> None:
        """Count one as waiting no longer. Its task may run again only later, when another could have its room in the queue."""
        key = (waiter.caller, waiter.turn[0])
        found = self._waiting.get(key, {})
        if waiter in found:
            del found[waiter]
            if not found:
                del self._waiting[key]
            if self._queue is not None and waiter.turn[0]:
                self._queue.give_back(waiter.caller)

    def __repr__(self) -> str:
        return f"<FairLimiter {self.held!r} waiting={self.waiting}>"
