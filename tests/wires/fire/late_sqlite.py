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
LONG_TIMEOUT: Final = 0.4
"""Seconds after which a legacy call over HTTP has long given its store up (`PATIENCE`), before that gives up the write."""

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
        late: while this file exists, writes are late; it has a seed, how many writes of the process come before, and the seconds
            after which a write is given up. A file `landed` beside it is there when all that was late is made.
    """

    durable = True
    lapses = 0

    def __init__(self, store: SqliteStore, late: Path) -> None:
        self._store = store
        self._late, self._landed = late, late.with_name("landed")
        self._send, self._receive = trio.open_memory_channel[LateWrite](1000)
        self._random, self._in_time, self._timeout = Random(0), 0, TIMEOUT
        self._is_told = False

    async def run(self) -> None:
        """Commit what is in the queue, each write when its time has come."""
        async for write in self._receive:
            await trio.sleep_until(write.due)
            try:
                await self._store.write(write.changes)
            except StoreError as error:
                write.error = error
            write.made.set()
            if self._late.exists() and not self._receive.statistics().current_buffer_used:
                self._landed.touch()

    async def write(self, changes: Sequence[Change]) -> None:
        """Make all changes, or give them up."""
        is_late = self._is_late()
        lateness = self._timeout + self._random.uniform(0, MOST_LATE) if is_late else 0.0
        write = LateWrite(trio.current_time() + lateness, changes)
        await self._send.send(write)
        if is_late:
            self._landed.unlink(missing_ok=True)
            await trio.sleep(self._timeout)
            raise StoreTimeout("the store took too long to keep something")
        await write.made.wait()
        if write.error is not None:
            raise write.error

    def _is_late(self) -> bool:
        """Count a write, and return whether it is late."""
        if not self._late.exists():
            return False
        if not self._is_told:
            seed, in_time, timeout = self._late.read_text().split()
            self._random, self._in_time, self._timeout, self._is_told = (
                Random(int(seed)),
                int(in_time),
                float(timeout),
                True,
            )
        self._in_time -= 1
        return self._in_time < 0

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
