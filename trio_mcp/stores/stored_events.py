"""The event log in a store that keeps records and logs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Final

from ..storage import Append, Forget, LogKey, Store

EVENTS: Final = "events"


class StoredEvents:
    """Stores what was sent on the streams of legacy HTTP sessions; see `EventStore`.

    Args:
        lifetime: seconds for which a log is kept after its last event.
    """

    def __init__(self, store: Store, lifetime: float) -> None:
        self._store = store
        self._lifetime = lifetime

    async def append(self, key: LogKey, first: int, events: Sequence[bytes]) -> None:
        """Store events, like `EventStore.append`."""
        await self._store.write([Append(EVENTS, stream_key(key), first, events, time.time() + self._lifetime)])

    async def read(self, key: LogKey, after: int, limit: int) -> Sequence[bytes]:
        """Return events, like `EventStore.read`."""
        return await self._store.entries(EVENTS, stream_key(key), after, limit)

    async def forget(self, principal: str | None, session: str, stream: int | None = None) -> None:
        """Remove the log of a stream. Those of a whole session expire."""
        if stream is not None:
            await self._store.write([Forget(EVENTS, stream_key(LogKey(principal, session, stream)))])


def stream_key(key: LogKey) -> str:
    """Return the key of a log. A session id may be all that protects a session, so that it is not in it."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:40]
