"""The times by which cancelled actors must have ended.

A cancel is a request: a body may shield itself from it, or swallow it, without limit. So each actor that was cancelled, or has a
deadline, has a *cleanup deadline*: the time of the cancel, or the deadline, plus a grace period. When it passes, the actor is
stuck. The time for which an actor may be parked is watched here too: to move the deadline of a scope costs more than the rest
of parking. An actor that is not parked, has no deadline and is never cancelled has no entry here.

One task waits for the earliest of all, and is started with the first. A timer for each actor would cost a task or a scope for
each call, and nearly every call ends long before.
"""

# The times are in a heap. An entry is not removed from its middle when its actor ends or gets another time: it becomes stale, and
# is skipped when it comes to the top. `_current` has the one valid entry of each actor. Stale entries are dropped all together as
# soon as they are the majority, so the heap never has more than twice as many entries as there are actors in it, and each
# change costs O(log n) on average.
#
#   call                            heap                        _current         task sleeps until
#   expect_end(a, 10), grace 5      (15, a)                     a: 15            15
#   cancelled(a) at 2               (7, a) (15, a)              a: 7             7
#   drop(a): it ended at 3          (none: both were stale)     -                infinity
#
# Entries hold names and not actors, so that an actor that has ended is not kept alive by an entry that is still in the heap.

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import count

import trio

from ..base.named_tuples import NamedTuple
from .actor import Actor, CancelReason

TURNS = 10
"""Turns of the event loop that the clean-up of an actor has at least, however long they take."""


class CleanupDeadline(NamedTuple):
    """A time on Trio's clock (seconds); the serial number distinguishes entries with the same time."""

    when: float
    serial: int
    name: str
    expires: bool
    """The actor is parked, and is cancelled at this time."""


class CleanupDeadlines:
    """The cleanup deadlines of a supervisor's actors, and the task that waits for them.

    Args:
        nursery: where that task runs.
        grace: seconds between a cancel, or a deadline, and the cleanup deadline.
        actors: the actors that have not ended, by name.
        on_overdue: called with an actor whose time has passed. The actor's `overdue_at` is `inf` again by then.
    """

    __slots__ = (
        "_actors",
        "_current",
        "_entries",
        "_grace",
        "_nursery",
        "_on_overdue",
        "_scope",
        "_serial",
        "_started",
        "_stopped",
    )

    def __init__(
        self, nursery: trio.Nursery, grace: float, actors: Mapping[str, Actor], on_overdue: Callable[[Actor], None]
    ) -> None:
        self._nursery = nursery
        self._grace = grace
        self._actors = actors
        self._on_overdue = on_overdue
        self._entries: list[CleanupDeadline] = []
        self._current: dict[str, CleanupDeadline] = {}
        self._serial: Iterator[int] = count()
        self._scope = trio.CancelScope(shield=True)
        self._started = False
        self._stopped = False

    def cancelled(self, actor: Actor) -> None:
        """Start the grace period of an actor that is being cancelled, unless its cleanup deadline is sooner anyway."""
        self._set(actor, min(trio.current_time() + self._grace, actor.overdue_at))

    def expect_end(self, actor: Actor, deadline: float) -> None:
        """Let the grace period of an actor start at `deadline`, on Trio's clock (seconds), instead of before; `inf` for never."""
        self._set(actor, deadline + self._grace)

    def expect_return(self, actor: Actor, seconds: float) -> None:
        """Cancel a parked actor as expired after this time, unless its deadline is before; `expect_end` takes that back."""
        until = trio.current_time() + seconds
        if until < actor.deadline:
            self._set(actor, until + self._grace, until)

    def drop(self, actor: Actor) -> None:
        """Forget an actor: it has ended, or is stuck already."""
        self._set(actor, math.inf)

    def _set(self, actor: Actor, when: float, until: float | None = None) -> None:
        if actor.overdue_at == when:
            return
        actor.overdue_at = when
        self._current.pop(actor.name, None)
        if when != math.inf:
            expires = until is not None
            entry = CleanupDeadline(when if until is None else until, next(self._serial), actor.name, expires)
            self._current[actor.name] = entry
            heappush(self._entries, entry)
            if not self._started:
                self._started = True
                self._nursery.start_soon(self._run)
        if len(self) * 2 < len(self._entries):
            self._drop_stale()
        # To move a deadline costs as much as all of this. The task may wake up too early, when nothing is due, but leaves no time
        # behind at the end.
        if self._earliest < self._scope.deadline or not self._entries:
            self._scope.deadline = self._earliest

    @trio.lowlevel.enable_ki_protection
    async def _run(self) -> None:
        """Wait for the times and call `on_overdue`, until `stop`."""
        # Shielded, because actors may be stuck just while the supervisor is cancelled from outside. `stop` ends the loop.
        while not self._stopped:
            with self._scope:
                await trio.sleep_forever()
            if self._stopped:
                return
            now = trio.current_time()
            # When a crowd leaves at once, one turn of the loop may take longer than the grace period: the clean-up of a call
            # has had its time then, but no chance to run.
            for _ in range(TURNS):
                await trio.lowlevel.cancel_shielded_checkpoint()
            if not self._stopped:
                self._renew(now)

    def stop(self) -> None:
        """End the task. No actor is left, and none will be started."""
        self._stopped = True
        self._scope.cancel()

    def _renew(self, now: float) -> None:
        """Report the actors whose time had passed by `now`, and wait for the next time."""
        self._scope = trio.CancelScope(shield=True)
        while self._earliest <= now:
            entry = heappop(self._entries)
            # Compared by identity: a stale entry may have the same time and name as the valid one.
            if self._current.get(entry.name) is entry:
                del self._current[entry.name]
                actor = self._actors[entry.name]
                actor.overdue_at = math.inf
                if entry.expires:
                    # Its grace period begins, which is another entry.
                    actor.cancel(actor.reason or CancelReason.EXPIRED)
                else:
                    self._on_overdue(actor)
        self._scope.deadline = self._earliest

    @property
    def _earliest(self) -> float:
        return self._entries[0].when if self._entries else math.inf

    def _drop_stale(self) -> None:
        self._entries = list(self._current.values())
        heapify(self._entries)

    def __len__(self) -> int:
        return len(self._current)
