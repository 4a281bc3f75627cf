"""The event log in this process: bounded in three ways, and nothing of it survives a restart."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

import trio

from ..storage import EventsGone, LogKey, NoSuchEvent

MIB: Final = 1024 * 1024
SessionKey: TypeAlias = tuple[str | None, str]


@dataclass(slots=True, eq=False)
class Kept:
    """The newest events of one stream; `first` is the number of the oldest of them.

    Most streams have a handful, and every call that waits for an answer has one: a list is a sixth of a deque then.
    """

    first: int
    events: list[bytes] = field(default_factory=list)
    size: int = 0

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1


@dataclass(slots=True, eq=False)
class Shelf:
    """The streams of one session, the one that has been silent longest first."""

    streams: dict[LogKey, Kept] = field(default_factory=dict)
    events: int = 0
    size: int = 0


class MemoryEventStore:
    """Keeps the newest events; what is over a limit goes, the stream that has been silent longest first.

    One stream over its limit loses its own oldest events. An event that is larger than a limit is not kept at all.

    Args:
        stream_events, stream_bytes: kept of one stream.
        session_events, session_bytes: kept of one session.
        total_events, total_bytes: kept in all.
    """

    def __init__(
        self,
        *,
        stream_events: int = 1024,
        stream_bytes: int = 8 * MIB,
        session_events: int = 4096,
        session_bytes: int = 16 * MIB,
        total_events: int = 100_000,
        total_bytes: int = 64 * MIB,
    ) -> None:
        self._of_stream = (stream_events, stream_bytes)
        self._of_session = (session_events, session_bytes)
        self._in_all = (total_events, total_bytes)
        self._shelves: dict[SessionKey, Shelf] = {}
        self._order: OrderedDict[LogKey, Kept] = OrderedDict()
        self._events = 0
        self._size = 0

    async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """See `EventStore.append`. It is done before the only checkpoint, so a cancel has kept them."""
        kept = self._kept(key, first)
        for event in events:
            kept.events.append(event)
            self._count(key, kept, 1, len(event))
        self._make_room(key, kept)
        await trio.lowlevel.checkpoint()

    async def read(self, key: LogKey, after: int, limit: int) -> Sequence[bytes]:
        """See `EventStore.read`."""
        await trio.lowlevel.checkpoint()
        kept = self._order.get(key)
        if kept is None or after + 1 < kept.first:
            raise EventsGone(f"the events after number {after} of stream {key.stream} are no longer kept")
        if after > kept.last:
            raise NoSuchEvent(f"stream {key.stream} has no event {after}")
        start = after + 1 - kept.first
        return list(islice(kept.events, start, start + limit))

    async def forget(self, principal: str | None, session: str, stream: int | None = None) -> None:
        """See `EventStore.forget`."""
        shelf = self._shelves.get((principal, session))
        for key in list(shelf.streams) if shelf is not None else ():
            if stream is None or key.stream == stream:
                self._drop(key)
        await trio.lowlevel.checkpoint()

    def __len__(self) -> int:
        return self._events

    def __repr__(self) -> str:
        return f"<MemoryEventStore streams={len(self._order)} events={self._events} bytes={self._size}>"

    def _kept(self, key: LogKey, first: int) -> Kept:
        """The stream, ready for an event of that number to be its next; it is the newest of all then."""
        kept = self._order.get(key)
        if kept is None:
            shelf = self._shelves.setdefault(owner(key), Shelf())
            kept = self._order[key] = shelf.streams[key] = Kept(first)
        self._order.move_to_end(key)
        streams = self._shelves[owner(key)].streams
        streams[key] = streams.pop(key)
        while kept.events and kept.last >= first:  # the same events once more
            self._count(key, kept, -1, -len(kept.events.pop()))
        if kept.last + 1 != first:  # some were never appended: nothing from before the hole can be replayed
            while kept.events:
                self._shorten(key, kept)
            kept.first = first
        return kept

    def _make_room(self, key: LogKey, kept: Kept) -> None:
        while over(len(kept.events), kept.size, self._of_stream):
            self._shorten(key, kept)
        shelf = self._shelves[owner(key)]
        while over(shelf.events, shelf.size, self._of_session):
            self._evict(next(iter(shelf.streams)), key)
        while over(self._events, self._size, self._in_all):
            self._evict(next(iter(self._order)), key)

    def _evict(self, oldest: LogKey, newest: LogKey) -> None:
        """Drop the oldest stream; the one that is being written to only loses its beginning."""
        if oldest == newest:
            self._shorten(oldest, self._order[oldest])
        else:
            self._drop(oldest)

    def _shorten(self, key: LogKey, kept: Kept) -> None:
        self._count(key, kept, -1, -len(kept.events.pop(0)))
        kept.first += 1

    def _drop(self, key: LogKey) -> None:
        kept = self._order.pop(key)
        self._count(key, kept, -len(kept.events), -kept.size)
        shelf = self._shelves[owner(key)]
        del shelf.streams[key]
        if not shelf.streams:
            del self._shelves[owner(key)]

    def _count(self, key: LogKey, kept: Kept, events: int, size: int) -> None:
        shelf = self._shelves[owner(key)]
        kept.size += size
        shelf.events += events
        shelf.size += size
        self._events += events
        self._size += size


def owner(key: LogKey) -> SessionKey:
    return key.principal, key.session


def over(events: int, size: int, limits: tuple[int, int]) -> bool:
    return events > limits[0] or size > limits[1]
