"""A SQLite store whose writes time out and are committed later: a database behind a slow network, with its times scaled down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

import trio

from trio_mcp.storage import Change, Record, StoreError, StoreTimeout
from trio_mcp.stores.sqlite import SqliteStore, open_sqlite

SCALE: Final = 0.05
"""A second of the store that this stands for."""

TIMEOUT: Final = 1.0 * SCALE
MOST_LATE: Final = 10.0 * SCALE


@dataclass(eq=False)
class LateWrite:
    """A write in the queue, and what became of it."""

    due: float
    changes: Sequence[Change]
    made: trio.Event = field(default_factory=trio.Event)
    error: StoreError | None = None


@asynccontextmanager
async def open_late_sqlite(path: Path, late: Path) -> AsyncIterator[LateSqlite]:
    """Open a store in a file, whose writes are late while the file `late` exists."""
    async with open_sqlite(str(path)) as store, trio.open_nursery() as nursery:
        opened = LateSqlite(store, late)
        nursery.start_soon(opened.run)
        yield opened
        nursery.cancel_scope.cancel()


class LateSqlite:
    """Commits what it is given in its order, like `SqliteStore`; but what is late has been given up by then.

    Args:
        late: while this file exists, writes are late; it has a seed, and how many writes of the process come before.
    """

    durable = True

    def __init__(self, store: SqliteStore, late: Path) -> None:
        self._store = store
        self._late = late
        self._send, self._receive = trio.open_memory_channel[LateWrite](1000)
        seed, in_time = map(int, late.read_text().split()) if late.exists() else (0, 0)
        self._random, self._in_time = Random(seed), in_time

    async def run(self) -> None:
        """Commit what is in the queue, each write when its time has come."""
        async for write in self._receive:
            await trio.sleep_until(write.due)
            try:
                await self._store.write(write.changes)
            except StoreError as error:
                write.error = error
            write.made.set()

    async def write(self, changes: Sequence[Change]) -> None:
        """Make all changes, or give them up."""
        is_late = self._late.exists() and self._in_time <= 0
        self._in_time -= 1
        lateness = TIMEOUT + self._random.uniform(0, MOST_LATE) if is_late else 0.0
        write = LateWrite(trio.current_time() + lateness, changes)
        await self._send.send(write)
        if is_late:
            await trio.sleep(TIMEOUT)
            raise StoreTimeout("the store took too long to keep something")
        await write.made.wait()
        if write.error is not None:
            raise write.error

    async def read(self, kind: str, key: str) -> Record | None:
        return await self._store.read(kind, key)

    async def list(self, kind: str, *, owner: str | None = None, after: str = "", limit: int = 100) -> Sequence[Record]:
        return await self._store.list(kind, owner=owner, after=after, limit=limit)

    async def entries(self, kind: str, key: str, after: int, limit: int) -> Sequence[bytes]:
        return await self._store.entries(kind, key, after, limit)

    async def join(self, node: str) -> None:
        await self._store.join(node)

    async def is_alive(self, node: str) -> bool:
        return await self._store.is_alive(node)
