"""An event store in the memory of this process: limited in three ways, and lost at a restart."""

# Example: `stream_events=3` and `total_events=4`, with appends to stream a (numbers 1 to 4) and then to stream b (1 and 2).
#
#   append     log of a           log of b     why
#   a: 1-3     1 2 3              -
#   a: 4       2 3 4              -            a is over `stream_events` and loses its oldest event
#   b: 1       2 3 4              1
#   b: 2       -                  1 2          5 events are over `total_events`: a has been silent longest, and goes as a whole
#
# A whole stream goes and not some events of each: a client can only resume from a log without a gap, so a stream that has lost
# events that a client still needs is useless, while the others are still complete.

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
class StreamLog:
    """The newest events of one stream; `first` is the number of the oldest of them."""

    first: int
    # Not a deque, which would make dropping the oldest event cheaper: a list uses about 1/6 of the memory of an empty deque, most
    # streams have a handful of events, and every call that waits for an answer has a stream.
    events: list[bytes] = field(default_factory=list)
    size: int = 0

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1


@dataclass(slots=True, eq=False)
class SessionLog:
    """The streams of one session; the one that has been silent longest is first."""

    streams: dict[LogKey, StreamLog] = field(default_factory=dict)
    events: int = 0
    size: int = 0


class MemoryEventStore:
    """Keeps the newest events, and evicts the stream that has been silent longest when a limit is exceeded.

    A single stream over its limit loses its oldest events. An event that is larger than a limit is not kept.

    Args:
        stream_events, stream_bytes: limits of one stream.
        session_events, session_bytes: limits of one session.
        total_events, total_bytes: limits of the store.
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
        self._stream_limits = (stream_events, stream_bytes)
        self._session_limits = (session_events, session_bytes)
        self._total_limits = (total_events, total_bytes)
        self._sessions: dict[SessionKey, SessionLog] = {}
        # Ordered, to find the stream that has been silent longest without looking at all of them.
        self._logs: OrderedDict[LogKey, StreamLog] = OrderedDict()
        self._events = 0
        self._size = 0

    async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """See `EventStore.append`. The events are kept before the only checkpoint, so a cancel does not lose them."""
        log = self._open_log(key, first)
        for event in events:
            log.events.append(event)
            self._count(key, log, 1, len(event))
        self._make_room(key, log)
        await trio.lowlevel.checkpoint()

    async def read(self, key: LogKey, after: int, limit: int) -> Sequence[bytes]:
        """See `EventStore.read`."""
        await trio.lowlevel.checkpoint()
        log = self._logs.get(key)
        if log is None or after + 1 < log.first:
            raise EventsGone(f"the events after number {after} of stream {key.stream} are no longer kept")
        if after > log.last:
            raise NoSuchEvent(f"stream {key.stream} has no event {after}")
        start = after + 1 - log.first
        return list(islice(log.events, start, start + limit))

    async def forget(self, principal: str | None, session: str, stream: int | None = None) -> None:
        """See `EventStore.forget`."""
        session_log = self._sessions.get((principal, session))
        for key in list(session_log.streams) if session_log is not None else ():
            if stream is None or key.stream == stream:
                self._drop(key)
        await trio.lowlevel.checkpoint()

    def __len__(self) -> int:
        return self._events

    def __repr__(self) -> str:
        return f"<MemoryEventStore streams={len(self._logs)} events={self._events} bytes={self._size}>"

    def _open_log(self, key: LogKey, first: int) -> StreamLog:
        """Return the log of a stream, made ready to append the event number `first`, as the newest of all logs."""
        log = self._logs.get(key)
        if log is None:
            session_log = self._sessions.setdefault(session_of(key), SessionLog())
            log = self._logs[key] = session_log.streams[key] = StreamLog(first)
        self._logs.move_to_end(key)
        streams = self._sessions[session_of(key)].streams
        # A dict keeps the order of insertion: taken out and put in again, the stream is the last one.
        streams[key] = streams.pop(key)
        # These events are appended again, because the caller does not know whether a cancelled append has kept them.
        while log.events and log.last >= first:
            self._count(key, log, -1, -len(log.events.pop()))
        # Some events were never appended. Nothing from before the gap can be replayed.
        if log.last + 1 != first:
            while log.events:
                self._drop_oldest_event(key, log)
            log.first = first
        return log

    def _make_room(self, key: LogKey, log: StreamLog) -> None:
        while exceeds(len(log.events), log.size, self._stream_limits):
            self._drop_oldest_event(key, log)
        session_log = self._sessions[session_of(key)]
        while exceeds(session_log.events, session_log.size, self._session_limits):
            self._evict(next(iter(session_log.streams)), key)
        while exceeds(self._events, self._size, self._total_limits):
            self._evict(next(iter(self._logs)), key)

    def _evict(self, oldest: LogKey, newest: LogKey) -> None:
        """Drop the oldest stream; the one that is being appended to loses its oldest event only."""
        if oldest == newest:
            self._drop_oldest_event(oldest, self._logs[oldest])
        else:
            self._drop(oldest)

    def _drop_oldest_event(self, key: LogKey, log: StreamLog) -> None:
        self._count(key, log, -1, -len(log.events.pop(0)))
        log.first += 1

    def _drop(self, key: LogKey) -> None:
        log = self._logs.pop(key)
        self._count(key, log, -len(log.events), -log.size)
        session_log = self._sessions[session_of(key)]
        del session_log.streams[key]
        if not session_log.streams:
            del self._sessions[session_of(key)]

    def _count(self, key: LogKey, log: StreamLog, events: int, size: int) -> None:
        """Add to the counters of the stream, its session and the store, which must always agree."""
        session_log = self._sessions[session_of(key)]
        log.size += size
        session_log.events += events
        session_log.size += size
        self._events += events
        self._size += size


def session_of(key: LogKey) -> SessionKey:
    return key.principal, key.session


def exceeds(events: int, size: int, limits: tuple[int, int]) -> bool:
    return events > limits[0] or size > limits[1]
