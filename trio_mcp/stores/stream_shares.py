"""The streams of an event log in the order of their last writes, and how much of its limits each caller has."""

from __future__ import annotations

from collections import OrderedDict

from ..runtime.quota import Quota
from ..shared_limits import EVENTS, SharedLimit
from ..storage import LogKey


class StreamShares:
    """Says which stream is evicted next: of a caller over its share its own, else the least recently written of all.

    A caller is a principal; without one it is a session.

    Args:
        events: how many there may be in total.
        size: bytes that they may have in total.
        what: the bytes that are limited.
    """

    __slots__ = ("_by_caller", "_limits", "_streams")

    def __init__(self, events: int, size: int, what: SharedLimit) -> None:
        self._limits = Quota(EVENTS, events), Quota(what, size)
        self._streams: OrderedDict[LogKey, None] = OrderedDict()
        self._by_caller: dict[str, OrderedDict[LogKey, None]] = {}

    @property
    def events(self) -> int:
        """How many events there are."""
        return self._limits[0].in_use

    @property
    def size(self) -> int:
        """How many bytes they have."""
        return self._limits[1].in_use

    def written(self, key: LogKey, caller: str) -> None:
        """Note that a stream, perhaps a new one, is written to."""
        own = self._by_caller.get(caller)
        if own is None:
            own = self._by_caller[caller] = OrderedDict()
        if key in own:
            own.move_to_end(key)
            self._streams.move_to_end(key)
        else:
            own[key] = self._streams[key] = None

    def count(self, caller: str, events: int, size: int) -> None:
        """Count so many events and bytes more of a caller, or less."""
        counts, sizes = self._limits
        counts.add(caller, events)
        sizes.add(caller, size)

    @property
    def is_over_half(self) -> bool:
        """Whether more than half of a limit is in use. Before that nothing is evicted."""
        counts, sizes = self._limits
        return counts.is_over_half or sizes.is_over_half

    def remove(self, key: LogKey) -> None:
        """Forget a stream that has no events."""
        caller = caller_of(key)
        del self._streams[key], self._by_caller[caller][key]
        if not self._by_caller[caller]:
            del self._by_caller[caller]

    def surplus(self, newest: LogKey) -> LogKey | None:
        """Return the stream that there is no room for since this one was written to; None if there is room for all.

        It is this one if that has more than the share of its caller by itself, but there is room for the others.
        """
        caller, is_full = caller_of(newest), any(limit.in_use > limit.limit for limit in self._limits)
        own = self.oldest_of(caller)
        if any(limit.is_over_share(caller) for limit in self._limits) and not (is_full and own == newest):
            return own
        return self.oldest if is_full else None

    @property
    def oldest(self) -> LogKey:
        """The stream that has not been written to for longest; there is one."""
        return next(iter(self._streams))

    def oldest_of(self, caller: str) -> LogKey:
        """Return the stream of a caller that has not been written to for longest; there is one."""
        return next(iter(self._by_caller[caller]))

    def events_of(self, caller: str) -> int:
        """Return how many events a caller has."""
        return self._limits[0].held(caller)

    def __repr__(self) -> str:
        return f"<StreamShares streams={len(self._streams)} callers={len(self._by_caller)}>"


def caller_of(key: LogKey) -> str:
    return key.session if key.principal is None else key.principal
