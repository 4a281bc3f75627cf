"""A limited number of places for which callers wait: who waits longest is next, unless it has its share.

The rule is that of `Quota`. A caller over its share waits until it frees a place, or less than half of the places are in use.
Others overtake it meanwhile, and it keeps its turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass, field

import trio

from ..base.shared_limits import SharedLimit
from .quota import Quota


@dataclass(slots=True, eq=False)
class Waiter:
    """One that waits for a place.

    Attributes:
        turn: the lowest is next; the first part is 0 for one that waits ahead of others.
    """

    caller: Hashable | None
    turn: tuple[int, int]
    lot: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)


class FairLimiter:
    """Places that callers share, and those that wait for one.

    Args:
        what: is limited.
        limit: how many there are.
        queue: counts the waiters, except those ahead of others; None for no count. A caller checks it before it waits.

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
        """Return whether a caller would get a place at once. If so, none of the caller's requests is waiting."""
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
