"""Journals and the events of streams in a `Store`: the interfaces that an application may implement one by one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from ..storage import Append, Forget, LogKey, Put, Record, Store

JOURNAL: Final = "journal"
EVENTS: Final = "events"
"""The kinds of what they keep."""


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
        found = await self._store.read(JOURNAL, key)
        version = 0 if found is None else found.version
        await self._store.write([Put(Record(JOURNAL, key, value, "", self._clock() + ttl, version))])

    async def get(self, key: str) -> bytes | None:
        """Return a journal, like `JournalStore.get`."""
        found = await self._store.read(JOURNAL, key)
        return None if found is None else found.value


class StoredEvents:
    """Keeps the events of streams as logs; an `EventStore`.

    Args:
        lifetime: seconds for which an event is kept after the newest of its stream.
        stream_events: how many of the newest events of a stream are kept.
        clock: the time in Unix seconds.
    """

    def __init__(
        self,
        store: Store,
        *,
        lifetime: float = 3600.0,
        stream_events: int = 1024,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._lifetime = lifetime
        self._keep = stream_events
        self._clock = clock

    async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """Store events, like `EventStore.append`."""
        expires_at = self._clock() + self._lifetime
        name = log_name(key.principal, key.session, key.stream)
        await self._store.write([Append(EVENTS, name, first, events, expires_at, self._keep)])

    async def read(self, key: LogKey, after: int, limit: int) -> Sequence[bytes]:
        """Return events, like `EventStore.read`."""
        return await self._store.entries(EVENTS, log_name(key.principal, key.session, key.stream), after, limit)

    async def forget(self, principal: str | None, session: str, stream: int | None = None) -> None:
        """Remove the log of a stream; those of a whole session expire by themselves."""
        if stream is not None:
            await self._store.write([Forget(EVENTS, log_name(principal, session, stream))])


def log_name(principal: str | None, session: str, stream: int) -> str:
    """Return the key of a stream's log. The session's id is a secret of its client, so that it is not in it."""
    owner = "" if principal is None else f"principal {principal}"
    digest = hashlib.sha256(f"{owner}\0{session}".encode()).hexdigest()[:40]
    return f"{digest}-{stream:09d}"
