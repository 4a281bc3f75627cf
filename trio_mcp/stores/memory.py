"""The event log in the memory of this process: limited in three ways, and lost when the process ends."""

# Three limits, because each closes another hole: per stream, so that one long call cannot use up its session's share; per
# session, so that one client cannot use up the others'; in total, so that many sessions cannot use up the process. Callers share
# that (`StreamShares`), as one can have many sessions. Each counts events and bytes, as a million empty events cost memory too.
#
# Above a limit the least recently written stream is evicted, and not the oldest event of all: a client that missed one event of
# a stream has to start over anyway, so half a stream is worth nothing.
#
# Example: `stream_events=3` and `total_events=4`, with streams of two callers
#
#   append     log of a           log of b     why
#   a: 1-3     1 2 3              -
#   a: 4       2 3 4              -            a is over `stream_events` and loses its oldest event
#   b: 1       2 3 4              1
#   b: 2       -                  1 2          5 events are over `total_events`, and a is the least recently written

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, TypeAlias

import trio

from ..base.shared_limits import EVENT_BYTES, EVENTS
from ..runtime import MemoryBudget, process_budget
from ..storage import EventsGone, LogKey, NoSuchEvent
from .adapters import StreamShares, caller_of

MIB: Final = 1024 * 1024
EVENT_SIZE: Final = 128
"""Bytes of memory that an event takes besides its content."""
SessionKey: TypeAlias = tuple[str | None, str]


@dataclass(slots=True, eq=False)
class Usage:
    """How much is stored of a stream, or of a session."""

    events: int = 0
    size: int = 0

    def is_over(self, limits: tuple[int, int]) -> bool:
        return self.events > limits[0] or self.size > limits[1]


@dataclass(slots=True, eq=False)
class StreamLog(Usage):
    """The newest events of one stream; `first` is the number of the oldest of them."""

    first: int = 1
    # Most streams have a handful of events, and every call that waits for an answer has a stream. A list uses about 1/6 of the
    # memory of an empty deque.
    log: list[bytes] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.first + len(self.log) - 1


@dataclass(slots=True, eq=False)
class SessionLog(Usage):
    """The streams of one session, the least recently written first."""

    streams: dict[LogKey, StreamLog] = field(default_factory=dict)


class MemoryEventStore:
    """Stores the newest events; above a limit, the least recently written stream is evicted.

    Callers share the total limits: over half of a limit, streams are evicted from callers that have more than a quarter. A single
    stream above its limit loses its oldest events. An event that is larger than a limit is not stored at all.

    Args:
        stream_events, stream_bytes: limits of one stream.
        session_events, session_bytes: limits of one session.
        total_events, total_bytes: limits of everything.
        memory: the budget that the events are kept in; by default that of the process. `asgi_app` uses that of its server.
    """

    def __init__(
        self,
        *,
        stream_events: int = 1024,
        stream_bytes: int = 8 * MIB,
        session_events: int = 4096,
        session_bytes: int = 16 * MIB,
        total_events: int = EVENTS.limit,
        total_bytes: int = EVENT_BYTES.limit,
        memory: MemoryBudget | None = None,
    ) -> None:
        self._stream_limits = (stream_events, stream_bytes)
        self._session_limits = (session_events, session_bytes)
        self._account = (process_budget() if memory is None else memory).open_table()
        # It does not end by itself.
        weakref.finalize(self, self._account.close)
        self._sessions: dict[SessionKey, SessionLog] = {}
        self._streams: dict[LogKey, StreamLog] = {}
        self._shares = StreamShares(total_events, total_bytes, EVENT_BYTES)

    async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """Store events, like `EventStore.append`. If it is cancelled, the events are stored: its only checkpoint comes last."""
        self.append_nowait(key, first, events)
        await trio.lowlevel.checkpoint()

    def append_nowait(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """Store events, as `append` does, without a checkpoint."""
        stream = self._stream(key, first)
        stream.log += events
        self._count(key, stream, len(events), sum(map(len, events)))
        self._evict_to_limits(key, stream)

    async def read(self, key: LogKey, after: int, limit: int) -> Sequence[bytes]:
        """Return events, like `EventStore.read`."""
        await trio.lowlevel.checkpoint()
        stream = self._streams.get(key)
        if stream is None or after + 1 < stream.first:
            raise EventsGone(f"the events after number {after} of stream {key.stream} are no longer kept")
        if after > stream.last:
            raise NoSuchEvent(f"stream {key.stream} has no event {after}")
        start = after + 1 - stream.first
        return list(islice(stream.log, start, start + limit))

    async def forget(self, principal: str | None, session: str, stream: int | None = None) -> None:
        """Remove a stream or a session, like `EventStore.forget`."""
        found = self._sessions.get((principal, session))
        for key in list(found.streams) if found is not None else ():
            if stream is None or key.stream == stream:
                self._drop(key)
        await trio.lowlevel.checkpoint()

    def __len__(self) -> int:
        return self._shares.events

    def __repr__(self) -> str:
        return f"<MemoryEventStore streams={len(self._streams)} events={len(self)} bytes={self._shares.size}>"

    def _stream(self, key: LogKey, first: int) -> StreamLog:
        """Return the stream, ready for an event with the number `first`, as the most recently written of all."""
        if key not in self._streams:
            session = self._sessions.setdefault(session_of(key), SessionLog())
            self._streams[key] = session.streams[key] = StreamLog(first=first)
        stream = self._streams[key]
        self._shares.written(key, caller_of(key))
        streams = self._sessions[session_of(key)].streams
        streams[key] = streams.pop(key)
        # The same events again: a cancelled `append` is repeated.
        while stream.log and stream.last >= first:
            self._count(key, stream, -1, -len(stream.log.pop()))
        # Some were never appended. Nothing from before the hole can be replayed, as a client must not miss one in between.
        if stream.last + 1 != first:
            while stream.log:
                self._shorten(key, stream)
            stream.first = first
        return stream

    def _evict_to_limits(self, key: LogKey, stream: StreamLog) -> None:
        while stream.is_over(self._stream_limits):
            self._shorten(key, stream)
        session = self._sessions[session_of(key)]
        while session.is_over(self._session_limits):
            self._evict(next(iter(session.streams)), key)
        while self._shares.is_over_half and (surplus := self._shares.surplus(key)) is not None:
            self._evict(surplus, key)
        # Logs are the first to go when memory is short: only a client that missed something needs them.
        if self._account.is_free:
            return
        caller, account = caller_of(key), self._account
        while account.is_over_share(0, caller) and self._shares.events_of(caller):
            self._evict(self._shares.oldest_of(caller), key)
        while account.is_used_up(0) and self._shares.events:
            self._evict(self._shares.oldest, key)

    def _evict(self, oldest: LogKey, newest: LogKey) -> None:
        """Drop the oldest stream. The one that is being written to only loses its beginning."""
        if oldest == newest:
            self._shorten(oldest, self._streams[oldest])
        else:
            self._drop(oldest)

    def _shorten(self, key: LogKey, stream: StreamLog) -> None:
        self._count(key, stream, -1, -len(stream.log.pop(0)))
        stream.first += 1

    def _drop(self, key: LogKey) -> None:
        stream = self._streams.pop(key)
        self._count(key, stream, -stream.events, -stream.size)
        self._shares.remove(key)
        session = self._sessions[session_of(key)]
        del session.streams[key]
        if not session.streams:
            del self._sessions[session_of(key)]

    def _count(self, key: LogKey, stream: StreamLog, events: int, size: int) -> None:
        session, caller = self._sessions[session_of(key)], caller_of(key)
        stream.events += events
        stream.size += size
        session.events += events
        session.size += size
        self._shares.count(caller, events, size)
        self._account.draw(events * EVENT_SIZE + size, caller)


def session_of(key: LogKey) -> SessionKey:
    return key.principal, key.session
