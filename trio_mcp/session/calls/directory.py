"""The calls that a later request may carry forward, and the outcomes of their finished legs.

A modern call has an unguessable name that travels sealed in `requestState`. The directory finds its call while the call runs
or is parked, and for a grace period afterwards, so that a repeated request gets the outcome that the first one got and runs
nothing.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import trio

# Where a call is, by its name:
#
#     event                 _unfinished    _finished
#     add                   yes                          it has asked: its state names it
#     register_replayed     yes                          and `_replayed` remembers the state, so that it starts one call only
#     finish                               yes           until the grace period is over, or newer ones need the room
#     forget
#
# A call that never asked is in none of them: no state names it, so no request can look for it.

C = TypeVar("C")

MAX_FINISHED = 10_000
"""Finished calls that are retained for repeated requests; the oldest is evicted first."""
MAX_FINISHED_BYTES = 64 * 1024 * 1024
"""Bytes of their encoded outcomes; the oldest goes first, the newest stays whatever its size."""


class FinishedCall(NamedTuple, Generic[C]):
    """A call that has ended, the time until which its outcomes are retained, and their size in bytes."""

    until: float
    call: C
    size: int


@dataclass(slots=True, eq=False, repr=False)
class CallDirectory(Generic[C]):
    """Calls by name. Names have 128 random bits from the system's generator."""

    _grace: float
    _unfinished: dict[str, C] = field(default_factory=dict)
    _finished: OrderedDict[str, FinishedCall[C]] = field(default_factory=OrderedDict)
    _finished_bytes: int = 0
    _replayed: OrderedDict[tuple[str, str, int], None] = field(default_factory=OrderedDict)

    def add(self, call: C) -> str:
        """Give the call a name under which later requests find it."""
        name = secrets.token_urlsafe(16)
        self._unfinished[name] = call
        return name

    def register_replayed(self, name: str, call: C, node: str, leg: int) -> None:
        """Add a call of another process; it continues here from the state that `node` sealed at the end of `leg`."""
        self._unfinished[name] = call
        self._replayed[name, node, leg] = None
        # Bounded, because a client decides how many states it sends. A client that replays so much that its own entry is evicted
        # could run its own call twice, and no call of others.
        if len(self._replayed) > MAX_FINISHED:
            self._replayed.popitem(last=False)

    def was_replayed(self, name: str, node: str, leg: int) -> bool:
        """Return whether a call went on here from that very state: it must not do so twice, however long ago that was."""
        return (name, node, leg) in self._replayed

    def forget(self, name: str) -> None:
        """Remove a call immediately, with its outcomes."""
        self._unfinished.pop(name, None)
        if name in self._finished:
            self._drop(name)

    def finish(self, name: str, size: int) -> None:
        """The call is over; its outcomes, `size` bytes of them, stay for the grace period."""
        call = self._unfinished.pop(name)
        now = trio.current_time()
        self._finished[name] = FinishedCall(now + self._grace, call, size)
        self._finished_bytes += size
        self._evict(now)

    def find(self, name: str) -> C | None:
        """Return the call of that name, unfinished or lately finished."""
        self._evict(trio.current_time())
        call = self._unfinished.get(name)
        if call is not None:
            return call
        finished = self._finished.get(name)
        return None if finished is None else finished.call

    def _evict(self, now: float) -> None:
        # At each look-up, and not in a task with a clock: an entry without a look-up costs its bytes, which are bounded.
        while self._finished:
            oldest = next(iter(self._finished))
            crowded = len(self._finished) > MAX_FINISHED
            heavy = self._finished_bytes > MAX_FINISHED_BYTES and len(self._finished) > 1
            if self._finished[oldest].until > now and not crowded and not heavy:
                return
            self._drop(oldest)

    def _drop(self, name: str) -> None:
        self._finished_bytes -= self._finished.pop(name).size

    def __len__(self) -> int:
        return len(self._unfinished)

    def __repr__(self) -> str:
        return f"<Directory live={len(self._unfinished)} finished={len(self._finished)}>"
