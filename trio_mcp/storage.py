"""The store interfaces: where a server stores what must outlive a process. `trio_mcp.stores` implements them."""

# Protocols of two and three methods, and not base classes: a store of an application is an adapter to its database, and needs
# nothing of this package. Keys are data, so that an adapter may map them to columns; values are bytes that only this package
# reads.

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class JournalStore(Protocol):
    """Stores journals that are too large to travel in a `requestState`."""

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        """Store `value` under `key` for at least `ttl` seconds, in place of an older value; return when it would survive a crash.

        After a cancel the value may or may not be stored.
        """

    async def get(self, key: str) -> bytes | None:
        """Return the value under `key`, or None. A cancel changes nothing."""


class LogKey(NamedTuple):
    """The key of a stream's log: its number, its session and its owner. A session id alone does not prove ownership."""

    principal: str | None
    session: str
    stream: int


class EventsGone(LookupError):
    """Events that were sent are no longer stored."""


class NoSuchEvent(LookupError):
    """There never was an event with this number."""


class EventStore(Protocol):
    """Stores what was sent on the streams of legacy HTTP sessions, so that a client can resume a stream.

    Events of a stream are numbered from 1. A store limits its size or the age of events, and may evict at any time, the oldest
    events of a stream first. If a method raises anything that is not named here, the events are not logged, and nothing else
    fails. A call that takes longer than a few seconds is cancelled and counts as failed.
    """

    async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """Store `events` under the numbers from `first` on, in place of any that are stored under these or later numbers.

        A gap before `first` makes everything before it unreadable. After a cancel the events may or may not be stored; the caller
        appends them again.
        """

    async def read(self, key: LogKey, after: int, limit: int) -> Sequence[bytes]:
        """Return the events from number `after + 1` on without a gap, at most `limit`; none if `after` is the newest.

        Raises:
            EventsGone: some of them are no longer stored, or the stream has no log.
            NoSuchEvent: `after` is newer than the newest.
        """
        ...

    async def forget(self, principal: str | None, session: str, stream: int | None = None) -> None:
        """Remove the log of a stream, or of all streams of a session."""
