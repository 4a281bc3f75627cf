"""Journals and the events of streams in a `Store`: the interfaces that an application may implement one by one."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from ..base.shared_limits import EVENTS, EVENTS as EVENT_COUNT, STORED_EVENT_BYTES, SharedLimit
from ..runtime.quota import Quota
from ..storage import Append, Change, Forget, LogKey, Put, Record, Remove, Store

# The streams of an event log in the order of their last writes, and how much of its limits each caller has.


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
        """Add to the counts of a caller's events and bytes; negative numbers subtract."""
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


JOURNAL: Final = "journal"
_EVENTS: Final = "events"
"""The kinds of what they keep."""
MIB: Final = 1024 * 1024


class StoredJournals:
    """Keeps journals as records; a `JournalStore`.

    Args:
        clock: the time in Unix seconds.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        """Store a journal, like `JournalStore.put`."""
        # Whatever version is there.
        await self._store.write([Remove(JOURNAL, key), Put(Record(JOURNAL, key, value, "", self._clock() + ttl))])

    async def get(self, key: str) -> bytes | None:
        """Return a journal, like `JournalStore.get`."""
        found = await self._store.read(JOURNAL, key)
        return None if found is None else found.value


@dataclass(slots=True)
class StreamSizes:
    """The sizes of the events of a stream that this process has stored; `first` is the number of the oldest of them."""

    name: str
    first: int
    sizes: list[int] = field(default_factory=list)
    total: int = 0

    def write(self, first: int, sizes: Sequence[int]) -> None:
        """Note the events from this number on, as `Append` stores them."""
        if not self.first <= first <= self.first + len(self.sizes):
            self.sizes, self.total, self.first = [], 0, first
        at = first - self.first
        self.total += sum(sizes) - sum(self.sizes[at:])
        self.sizes[at:] = sizes

    def shorten(self, most: int, most_bytes: int) -> bool:
        """Forget the oldest events over these limits; return whether there were any."""
        gone = max(0, len(self.sizes) - most)
        left = self.total - sum(self.sizes[:gone])
        while left > most_bytes:
            left -= self.sizes[gone]
            gone += 1
        del self.sizes[:gone]
        self.first, self.total = self.first + gone, left
        return gone > 0


class StoredEvents:
    """Keeps the events of streams as logs; an `EventStore`.

    Its limits are those of `MemoryEventStore`, for what this process stores: a stream above its limit loses its oldest events;
    above the others the least recently written stream is removed, and callers share those of everything in the same way. What an
    earlier process has left expires.

    Args:
        lifetime: seconds for which the events of a stream are kept after the newest of them.
        stream_events, stream_bytes: limits of one stream.
        session_events, session_bytes: limits of one session.
        total_events, total_bytes: limits of everything.
        clock: the time in Unix seconds.
    """

    def __init__(
        self,
        store: Store,
        lifetime: float = 3600.0,
        *,
        stream_events: int = 1024,
        stream_bytes: int = 8 * MIB,
        session_events: int = 4096,
        session_bytes: int = 16 * MIB,
        total_events: int = EVENT_COUNT.limit,
        total_bytes: int = STORED_EVENT_BYTES.limit,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._lifetime = lifetime
        self._stream_limits = (stream_events, stream_bytes)
        self._session_limits = (session_events, session_bytes)
        self._clock = clock
        self._streams: dict[LogKey, StreamSizes] = {}
        """Those that this process has written."""
        self._shares = StreamShares(total_events, total_bytes, STORED_EVENT_BYTES)
        self._sessions: dict[tuple[str | None, str], dict[LogKey, StreamSizes]] = {}
        """The same by session, the least recently written first."""

    async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """Store events, like `EventStore.append`."""
        await self._store.write(self.appending(key, first, events))

    def appending(self, key: LogKey, first: int, events: Sequence[bytes]) -> list[Change]:
        """Return the changes that `append` makes, for a write that makes others too."""
        # Before anything is stored: what the store then refuses, the caller appends again under the same numbers.
        stream = self._note(key, first, [len(event) for event in events])
        expires_at = self._clock() + self._lifetime
        appended = Append(_EVENTS, stream.name, first, events, expires_at, self._keep(key, stream))
        return [appended, *self._evict(key)]

    def is_in(self, store: Store) -> bool:
        """Return whether the events are kept in this store."""
        return self._store is store

    async def read(self, key: LogKey, after: int, limit: int) -> Sequence[bytes]:
        """Return events, like `EventStore.read`."""
        return await self._store.entries(_EVENTS, log_name(key), after, limit)

    async def forget(self, principal: str | None, session: str, stream: int | None = None) -> None:
        """Remove the log of a stream, or all of a session that this process has written."""
        known = list(self._sessions.get((principal, session), ())) if stream is None else []
        keys = known if stream is None else [LogKey(principal, session, stream)]
        if keys:
            await self._store.write([self._drop(key) for key in keys])
        else:
            await trio.lowlevel.checkpoint()

    # one step each

    def _note(self, key: LogKey, first: int, sizes: Sequence[int]) -> StreamSizes:
        """Note what is about to be stored; return the stream, as the most recently written of all."""
        streams = self._sessions.setdefault((key.principal, key.session), {})
        stream = streams.pop(key, None) or StreamSizes(log_name(key), first)
        self._streams[key] = streams[key] = stream
        self._shares.written(key, caller_of(key))
        self._count(key, stream, -1)
        stream.write(first, sizes)
        self._count(key, stream, 1)
        return stream

    def _keep(self, key: LogKey, stream: StreamSizes) -> int:
        """Return how many of the newest events of a stream are kept."""
        self._count(key, stream, -1)
        is_cut = stream.shorten(*self._stream_limits)
        self._count(key, stream, 1)
        # Uncut it may have more, from an earlier process.
        return len(stream.sizes) if is_cut else self._stream_limits[0]

    def _evict(self, newest: LogKey) -> list[Change]:
        """Return the changes that remove other streams, as long as there is too much."""
        changes: list[Change] = []
        session = self._sessions[newest.principal, newest.session]
        while len(session) > 1 and is_over(session.values(), self._session_limits):
            changes.append(self._drop(next(iter(session))))
        while (surplus := self._shares.surplus(newest)) not in (None, newest):
            changes.append(self._drop(surplus))
        return changes

    def _drop(self, key: LogKey) -> Forget:
        stream = self._streams.pop(key, None)
        if stream is not None:
            self._count(key, stream, -1)
            self._shares.remove(key)
            session = self._sessions[key.principal, key.session]
            del session[key]
            if not session:
                del self._sessions[key.principal, key.session]
        return Forget(_EVENTS, log_name(key))

    def _count(self, key: LogKey, stream: StreamSizes, sign: int) -> None:
        self._shares.count(caller_of(key), sign * len(stream.sizes), sign * stream.total)


def is_over(streams: Iterable[StreamSizes], limits: tuple[int, int]) -> bool:
    events = size = 0
    for stream in streams:
        events, size = events + len(stream.sizes), size + stream.total
    return events > limits[0] or size > limits[1]


def log_name(key: LogKey) -> str:
    """Return the key of a stream's log. The session's id may be all that protects the session, so that it is not in it."""
    digest = hashlib.sha256(repr((key.principal, key.session)).encode()).hexdigest()[:40]
    return f"{digest}-{key.stream:09d}"
