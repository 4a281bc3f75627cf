"""Where a server keeps what must outlive a process. Interfaces only; the homes are in `trio_mcp.stores`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class JournalStore(Protocol):
    """Keeps journals that are too large to travel in a `requestState`."""

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        """Keep `value` under `key` for at least `ttl` seconds; an older value is replaced. Done when it would survive a crash.

        A cancel may or may not have kept it.
        """
        ...

    async def get(self, key: str) -> bytes | None:
        """What is kept under `key`, or None. A cancel changes nothing."""
        ...


class LogKey(NamedTuple):
    """Whose log it is: a stream counts only together with its session, and a session with its owner (S-46)."""

    principal: str | None
    session: str
    stream: int


class EventsGone(LookupError):
    """Events that were sent are no longer kept."""


class NoSuchEvent(LookupError):
    """There never was an event of that number."""


class EventStore(Protocol):
    """Keeps what was sent on the streams of legacy HTTP sessions, so that a client can ask for what it missed.

    Events of a stream are numbered from 1. A store is bounded by number, size or age and may evict events at any time, of one
    stream always the oldest first. If it raises anything that is not named here, the events are not stored, and the call
    continues. An operation that takes longer than a few seconds is cancelled and counts as failed.
    """

    async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """Keep `events` under the numbers from `first` on, in place of any that are kept under these or later numbers.

        A gap before `first` makes everything before it unreadable. After a cancel the events may or may not be stored; the
        caller appends them again.
        """
        ...

    async def read(self, key: LogKey, after: int, limit: int) -> Sequence[bytes]:
        """The events from number `after + 1` on without a gap, at most `limit`; empty when `after` is the newest.

        Raises:
            EventsGone: some of them are no longer kept, or nothing is kept of the stream.
            NoSuchEvent: `after` is newer than the newest.
        """
        ...

    async def forget(self, principal: str | None, session: str, stream: int | None = None) -> None:
        """Keep nothing more of a stream, or of all streams of a session."""
        ...
