"""What tests of stores on a network say to them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from trio_mcp.stores import Put, Record, Remove, StoreError
from trio_mcp.stores.postgres import PostgresStore, open_postgres
from trio_mcp.stores.redis import RedisStore, open_redis

BOUND = 60

AnyStore = RedisStore | PostgresStore


def open_at(url: str, clock: Callable[[], float] = time.time) -> AbstractAsyncContextManager[AnyStore]:
    return open_redis(url, clock=clock) if url.startswith("redis") else open_postgres(url, clock=clock)


@asynccontextmanager
async def opened(url: str, clock: Callable[[], float] = time.time) -> AsyncIterator[AnyStore]:
    with trio.fail_after(BOUND):
        async with open_at(url, clock) as store:
            yield store


def thing(key: str, value: bytes = b"value", version: int = 0, expires_at: float = float("inf")) -> Put:
    return Put(Record("thing", key, value, "", expires_at, version))


async def written(store: AnyStore, key: str) -> None:
    """Write until the store takes it."""
    while True:
        try:
            return await store.write([Remove("thing", key), thing(key)])
        except StoreError:
            await trio.sleep(0.05)


async def dead(store: AnyStore, node: str) -> None:
    while not await store.bury(node):  # noqa: ASYNC110  no event of ours
        await trio.sleep(0.05)


async def bury_none(*pairs: tuple[AnyStore, str], seconds: float) -> None:
    """Check for some seconds that no store takes a process for dead."""
    until = trio.current_time() + seconds
    while trio.current_time() < until:
        try:
            for store, node in pairs:
                assert not await store.bury(node)
        except StoreError:
            pass
        await trio.sleep(0.02)
