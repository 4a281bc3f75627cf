"""The store interfaces: where a server stores what must outlive a process. `trio_mcp.stores` implements them."""

# Protocols of two and three methods, and not base classes: a store of an application is an adapter to its database, and needs
# nothing of this package. Keys are data, so that an adapter may map them to columns; values are bytes that only this package
# reads.

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import Enum
from typing import Final, Protocol, TypeAlias, runtime_checkable

from .base.named_tuples import NamedTuple


@runtime_checkable
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


class StoreError(Exception):
    """A store failed to perform an operation."""


class StoreConflict(StoreError):
    """A record has another version than the change expects; nothing was written."""


class StoreFull(StoreError):
    """There is no room for the write; nothing was written."""


class StoreTimeout(StoreError):
    """The store took too long; the write may or may not have been made."""


class Fenced(StoreError):
    """This process was buried (`SharedStore.bury`): nothing was written, and none of its later writes will be."""


def may_be_made(error: BaseException) -> bool:
    """Return whether a write that failed in this way may have been made, or may still be made later.

    Before anything relies on such a write, it is made again, or read back.
    """
    return not isinstance(error, StoreConflict | StoreFull | Fenced)


class UnreadableRecord(StoreError):
    """A record is there and cannot be opened: it was sealed with another key, or is damaged."""


class Record(NamedTuple):
    """One record of a store.

    Attributes:
        kind: what it is ("task", "session", "call", ...), so that an adapter may map it to tables.
        key: names it among its kind. Records of a kind are listed in the order of their keys.
        value: bytes that only this package reads.
        owner: whose it is, for `Store.list`; empty if it has none. A sealed store keeps a digest of it.
        expires_at: Unix seconds; afterwards no method returns it, and the store may remove it at any time.
        version: as read, 1 or more. In a `Put`, the version that it replaces; 0 if there must be none.
    """

    kind: str
    key: str
    value: bytes
    owner: str = ""
    expires_at: float = math.inf
    version: int = 0


class Put(NamedTuple):
    """Store a record, whose version becomes one more."""

    record: Record


class Remove(NamedTuple):
    """Remove a record if it exists. With a version, it is a conflict if the record has another one or is missing."""

    kind: str
    key: str
    version: int | None = None


class Expect(NamedTuple):
    """Change nothing, but require a version: if the record has another one, or is missing, nothing is written.

    A process adds it for a record that it owns: once another process has taken that over, it writes nothing more.

    Attributes:
        version: as read, 1 or more.
    """

    kind: str
    key: str
    version: int


class Append(NamedTuple):
    """Append entries to a log, numbered from `first` on; they replace any entries with these or later numbers.

    A gap before `first` makes everything before it unreadable.

    Attributes:
        expires_at: the new expiry time of the whole log, in Unix seconds. After it there is no such log, and the next
            entries begin a new one.
        keep: how many of the newest entries the log keeps; None for all.
    """

    kind: str
    key: str
    first: int
    entries: Sequence[bytes]
    expires_at: float = math.inf
    keep: int | None = None


class Forget(NamedTuple):
    """Remove a log."""

    kind: str
    key: str


Change: TypeAlias = Put | Remove | Expect | Append | Forget
"""One step of `Store.write`."""


@runtime_checkable
class Store(Protocol):
    """Stores records and logs: everything of a server that may have to outlive a process.

    `trio_mcp.testing.contract.store` has the tests of an implementation. Every method may raise `StoreError`. A server
    closes a store that it has opened by name, but not one that it was given open.
    """

    @property
    def durable(self) -> bool:
        """Whether it outlives the process."""
        ...

    @property
    def lapses(self) -> int:
        """How often this process was not seen to live, so that others may have taken over what it has."""
        ...

    async def write(self, changes: Sequence[Change]) -> None:
        """Make all changes, in this order, or none; return when they would survive the end of the process.

        After a cancel, or an error that is neither a `StoreConflict` nor a `StoreFull`, they may be made, also later, or not. But
        what one process writes to a record or a log is written in the order of its calls: once a later write has returned, or
        was refused with one of the two, an earlier one is made or never will be.

        Raises:
            StoreConflict: a record has another version than a change expects.
            StoreFull: there is no room.
        """

    async def read(self, kind: str, key: str) -> Record | None:
        """Return a record, or None if there is none.

        Raises:
            UnreadableRecord: it cannot be opened.
        """
        ...

    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        """Return records in the order of their keys, from the one after the key `after` on.

        Those that cannot be opened are left out. `after` need not be the key of a record.

        Args:
            owner: whose records are listed; None for all.

        Returns:
            at most `limit`, and fewer only if there are no more. The owner of a record may be a digest.
        """
        ...

    async def entries(self, kind: str, key: str, after: int, limit: int) -> Sequence[bytes]:
        """Return the entries of a log from number `after + 1` on without a gap, at most `limit`; none if `after` is the newest.

        Raises:
            EventsGone: some of them are no longer stored, or there is no such log.
            NoSuchEvent: `after` is newer than the newest.
        """
        ...

    async def join(self, node: str) -> None:
        """Say that this process lives under that name, until the store is closed or the process ends."""

    async def is_alive(self, node: str) -> bool:
        """Return whether the process of that name may still write: the opposite of `SharedStore.bury` in a store that has it.

        Elsewhere False at once when it has ended, however it ended.
        """
        ...


MOST_NOTICE: Final = 4096
"""Bytes that the topic and the content of a notice may have together."""


class Notice(NamedTuple):
    """What a process has announced to all that use the same store."""

    topic: str
    content: bytes


class Missed(Enum):
    """The type of `MISSED`."""

    MISSED = "missed"


MISSED: Final = Missed.MISSED
"""Notices may have been lost: the reader looks into the store for what has changed."""


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store that several processes use at once, perhaps on several machines.

    `trio_mcp.testing.contract.store` tests such a store with the trait `NOTIFYING`, and with `LEASED` if processes have leases.
    """

    async def join(self, node: str, about: bytes = b"") -> None:
        """Say that this process lives under that name, until the store is closed or the process ends.

        From now on a write is refused with `Fenced` once this process is buried; whether it is buried is decided in the same
        atomic unit. After that, joining under another name lets the store write again.

        Args:
            about: what `nodes` returns for it to the others.

        Raises:
            Fenced: a process of this name was buried.
        """

    async def bury(self, node: str) -> bool:
        """Take a process for dead if it does not say that it lives; return whether it is dead.

        True: nothing that it writes is made from now on. False: it lives, or it is too early to say, because the store was
        away or is new, and the process may not have been able to say that it lives.
        """
        ...

    async def nodes(self) -> Mapping[str, bytes]:
        """Return the names of the living processes, and what each says about itself."""
        ...

    async def announce(self, topic: str, content: bytes) -> None:
        """Send a notice to all processes that listen, this one too: at most once, and equal ones together perhaps as one.

        Raises:
            ValueError: it has more than `MOST_NOTICE` bytes.
        """

    def listen(self) -> AbstractAsyncContextManager[AsyncIterator[Notice | Missed]]:
        """Return a context manager of the notices from now on; `MISSED` where some may have been lost."""
        ...


def notice_bytes(topic: str, content: bytes) -> bytes:
    """Return a notice as bytes. Raises `ValueError` if it is too large, or the topic has a NUL."""
    data = topic.encode() + b"\0" + content
    if "\0" in topic or len(data) > MOST_NOTICE:
        raise ValueError(
            f"a notice has at most {MOST_NOTICE} bytes, and no NUL in its topic; this has {len(data)} bytes"
        )
    return data


def notice_of(data: bytes) -> Notice:
    """Return the notice that `notice_bytes` made bytes of."""
    topic, _, content = data.partition(b"\0")
    return Notice(topic.decode(errors="replace"), content)
