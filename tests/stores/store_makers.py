"""The stores of this project, as their contract sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from trio_mcp.session import KeyRing, MemoryBudget
from trio_mcp.stores import Store, open_store
from trio_mcp.stores.sqlite import open_sqlite
from trio_mcp.testing.contract import StoreTrait

KEYS = KeyRing([bytes(range(32)), bytes(range(32, 64))])


class Clock:
    """A time that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class InMemory:
    name = "memory"
    traits: frozenset[StoreTrait] = frozenset()

    @asynccontextmanager
    async def open(self, place: Path) -> AsyncIterator[Store]:
        memory = MemoryBudget(64 * 1024 * 1024)
        async with open_store("memory:", None, memory) as store:
            yield store
        assert memory.drawn == 0


class InSqlite:
    name = "sqlite"
    traits = frozenset({StoreTrait.DURABLE, StoreTrait.SHARED, StoreTrait.NOTIFYING})

    @asynccontextmanager
    async def open(self, place: Path) -> AsyncIterator[Store]:
        async with open_sqlite(str(place)) as store:
            yield store


class Sealed:
    name = "sealed"
    traits = InSqlite.traits

    @asynccontextmanager
    async def open(self, place: Path) -> AsyncIterator[Store]:
        async with open_store(str(place), KEYS, MemoryBudget(64 * 1024 * 1024)) as store:
            yield store
