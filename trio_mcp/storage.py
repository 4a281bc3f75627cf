"""The interfaces of what a server stores outside of its objects; `trio_mcp.stores` has implementations."""

# Protocols and not base classes: an author's store is usually a thin class around a database client, and this package is not
# needed to write it. Principals are part of every key, so that a store cannot serve one caller what belongs to another (S-46).

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class JournalStore(Protocol):
    """Keeps journals that are too large for a `requestState`."""

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        """Store `value` under `key` for at least `ttl` seconds, in place of an older value.

        Returns only when the value would survive a crash. After a cancel it may or may not have been stored.
        """
        ...

    async def get(self, key: str) -> bytes | None:
        """Return the value stored under `key`, or None. A cancel changes nothing."""
        ...


class LogKey(NamedTuple):
    """Identifies one stream's log. A stream number is unique only within its session, and a session only within its principal."""

    principal: str | None
    session: str
    stream: int


class EventsGone(LookupError):
    """The events were sent once, and are no longer kept."""


class NoSuchEvent(LookupError):
    """There has never been an event with that number."""


class EventStore(Protocol):
    """Keeps the events that were sent on the streams of legacy HTTP sessions, so that a client can resume a stream.

    The events of a stream are numbered from 1. A store may drop events at any time, by its own limits or by their age, but the
    oldest events of a stream always first. If a method raises anything other than what is documented here, these events
    cannot be replayed, and nothing else fails. A call that takes longer than a few seconds is cancelled and counts as failed.
    """

    async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """Store `events` under the numbers from `first` on, in place of all events with these or later numbers.

        If there is a gap before `first`, no event before it can be read any more. After a cancel the events may or may not have
        been stored; the caller appends them again.
        """
        ...

    async def read(self, key: LogKey, after: int, limit: int) -> Sequence[bytes]:
        """Return at most `limit` events from number `after + 1` on, without a gap; none if `after` is the newest.

        Raises:
            EventsGone: some of them are no longer kept, or nothing is kept of the stream.
            NoSuchEvent: `after` is newer than the newest.
        """
        ...

    async def forget(self, principal: str | None, session: str, stream: int | None = None) -> None:
        """Drop the events of one stream, or of all streams of a session."""
        ...
