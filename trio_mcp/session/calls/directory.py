"""The calls that a later request may carry forward, and the outcomes of their finished legs.

A modern call has an unguessable name that travels sealed in `requestState`. The directory finds its call while the call runs
or is parked, and for a grace period afterwards, so that a repeated request gets the outcome that the first one got and runs
nothing.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import trio

from ...base.named_tuples import NamedTuple
from ...base.shared_limits import FINISHED_BYTES, FINISHED_CALLS, REPLAYED_STATES
from ...errors import LimitExceeded, McpError, RequestTimeout
from ...runtime import MemoryBudget
from ...runtime.oldest_first import Kept, OldestFirst
from ...runtime.quota import Quota
from ..envelope import OUTCOME_SIZE

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
E = TypeVar("E")


class FinishedCall(NamedTuple, Generic[E]):
    """What is kept of a call that has ended, and the time until which it is."""

    until: float
    ended: E


class CallDirectory(Generic[C, E]):
    """Calls by name. Names have 128 random bits from the system's generator. Close it when no call runs any more.

    Args:
        grace: seconds for which the outcomes of a finished call are kept.
        memory: the budget that it is kept in; where that has no room for a caller its oldest are evicted.

    Callers share the limits of what is kept; see `OldestFirst`.
    """

    __slots__ = ("_account", "_evicting", "_finished", "_grace", "_replayed", "_unfinished")

    def __init__(self, grace: float, memory: MemoryBudget) -> None:
        self._grace = grace
        self._unfinished: dict[str, C] = {}
        finished, sizes = Quota(FINISHED_CALLS), Quota(FINISHED_BYTES)
        self._finished: OldestFirst[str, FinishedCall[E]] = OldestFirst(finished, sizes, self._give_back)
        self._replayed: OldestFirst[tuple[str, str, int], bool] = OldestFirst(Quota(REPLAYED_STATES))
        self._evicting = trio.lowlevel.ParkingLot()
        self._account = memory.open_table()

    def add(self, call: C) -> str:
        """Give the call a name under which later requests find it."""
        name = secrets.token_urlsafe(16)
        self._unfinished[name] = call
        return name

    def register_replayed(self, name: str, call: C, node: str, leg: int, caller: Hashable | None = None) -> None:
        """Add a call of another process; it continues here from the state that `node` sealed at the end of `leg`."""
        self._unfinished[name] = call
        # Bounded, because a client decides how many states it sends. A client that replays so much that its own entry is evicted
        # could run its own call twice, and no call of others.
        self._replayed.add((name, node, leg), True, caller)

    def was_replayed(self, name: str, node: str, leg: int) -> bool:
        """Return whether a call went on here from that very state: it must not do so twice, however long ago that was."""
        return (name, node, leg) in self._replayed

    def forget(self, name: str) -> None:
        """Remove a call immediately, with its outcomes."""
        self._unfinished.pop(name, None)
        self._drop(name)

    def finish(self, name: str, ended: E, size: int, caller: Hashable | None = None) -> None:
        """The call is over; `ended`, with `size` bytes of outcomes, stays for the grace period."""
        # The service was cancelled, and closed the directory before its calls had unwound: no request can ask for them.
        if self._unfinished.pop(name, None) is None:
            return
        size += OUTCOME_SIZE
        self._account.draw(size, caller)
        self._finished.add(name, FinishedCall(trio.current_time() + self._grace, ended), caller, size)
        self._finished.fit(self._account, caller)
        self._evicting.unpark()

    def find(self, name: str) -> C | E | None:
        """Return the call of that name, or the outcomes of one that ended within the grace period."""
        call = self._unfinished.get(name)
        if call is not None:
            return call
        finished = self._finished.get(name)
        return None if finished is None or finished.until <= trio.current_time() else finished.ended

    async def evict_in_time(self) -> None:
        """Drop the outcomes of each call when its grace period is over, until cancelled; run it as a task."""
        while True:
            if not self._finished:
                await self._evicting.park()
                continue
            # No name for it: it would be kept while this sleeps.
            oldest, until = next(iter(self._finished)), self._first_until()
            # Evicted while it slept, perhaps; then the next one is looked at.
            await trio.sleep_until(until)
            self._drop(oldest)

    def _first_until(self) -> float:
        first = self._finished.first
        assert first is not None, "something is kept"
        return first.until

    def _drop(self, name: str) -> None:
        kept = self._finished.pop(name)
        if kept is not None:
            self._give_back(name, kept)

    def _give_back(self, _name: str, kept: Kept[FinishedCall[E]]) -> None:
        _, caller, size = kept
        self._account.give_back(size, caller)

    def forget_replayed(self) -> None:
        """Let calls go on here once more: they were given up, and the store says which process has each."""
        self._replayed.close()

    def close(self) -> None:
        """Forget all calls, and give back what they took of the memory budget."""
        self._unfinished.clear()
        self._finished.close()
        self._account.close()

    def __len__(self) -> int:
        return len(self._unfinished)

    def __repr__(self) -> str:
        return f"<Directory live={len(self._unfinished)} finished={len(self._finished)}>"


# Calls that wait in another process: their clients come back until they reach that one.

UNREACHED_SECONDS: Final = 10.0
"""For how long the requests for one leg, or one session, are refused as busy."""

COME_BACK_SECONDS: Final = 60.0
"""After this time without the error that ends the attempts, a request counts as the first one."""

MOST_LEGS: Final = 1000
"""Legs or sessions that are remembered; of an older one the time begins again."""

TRY_AGAIN: Final = (
    "this call waits in another process of this server, or in one that has just ended; "
    "send the request again in a moment"
)

NOT_REACHED: Final = (
    "This call waits in another process of this server, which its requests have not reached for "
    f"{UNREACHED_SECONDS:g} seconds. Send all requests of a client to one process, or let the tool be replayed in any of "
    'them: resume="replay".'
)


class Unreached:
    """What requests that have come to this process are about, and another process has.

    These are legs whose calls are parked there, and legacy sessions that are in use there.
    """

    __slots__ = ("_since",)

    def __init__(self) -> None:
        self._since: OrderedDict[Hashable, float] = OrderedDict()

    def waited(self, key: Hashable) -> float:
        """Note that a request has come in vain; return for how many seconds they have."""
        now = trio.current_time()
        since = self._since.setdefault(key, now)
        if now - since > COME_BACK_SECONDS:
            since = self._since[key] = now
        if len(self._since) > MOST_LEGS:
            self._since.popitem(last=False)
        return now - since

    def forget(self, key: Hashable) -> None:
        """Let the time begin again."""
        self._since.pop(key, None)

    def refusal(self, call_id: str, leg: int) -> McpError:
        """Return the error for a request: one that asks to send it again, or, after `UNREACHED_SECONDS`, one that does not."""
        key = (call_id, leg)
        if self.waited(key) <= UNREACHED_SECONDS:
            return LimitExceeded(TRY_AGAIN)
        self.forget(key)
        return RequestTimeout(NOT_REACHED)

    def __len__(self) -> int:
        return len(self._since)
