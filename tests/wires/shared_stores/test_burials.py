"""Burials that race with the writes of the process that is buried, at a real server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import pytest
import trio
from store_servers import POSTGRES_VARIABLE, REDIS_VARIABLE

from trio_mcp.storage import Fenced, Put, Record, StoreError
from trio_mcp.stores.leased import LeasedStore
from trio_mcp.stores.leases import Renewal
from trio_mcp.stores.postgres import PostgresStore, open_postgres
from trio_mcp.stores.redis import RedisStore, open_redis

VICTIMS = 10
ROUNDS = 3
BOUND = 60

OpenOne = Callable[[str], AbstractAsyncContextManager[RedisStore | PostgresStore]]


@pytest.fixture(params=[(REDIS_VARIABLE, open_redis), (POSTGRES_VARIABLE, open_postgres)], ids=["redis", "postgres"])
def opening(request: pytest.FixtureRequest) -> tuple[str, OpenOne]:
    variable, open_one = request.param
    request.getfixturevalue("redis_url" if variable == REDIS_VARIABLE else "postgres_url")
    return f"{os.environ[variable]}?namespace={secrets.token_hex(8)}", open_one


def no_renewal(_nodes: Mapping[str, bytes]) -> Renewal:
    raise StoreError("the lease of this test is not renewed")


async def write_until_fenced(store: LeasedStore[object], name: str) -> None:
    number = 0
    while True:
        try:
            await store.write([Put(Record(name, f"{number}", b""))])  # type: ignore[attr-defined]
        except Fenced:
            return
        number += 1


async def test_no_write_is_made_after_the_burial_of_its_process(opening: tuple[str, OpenOne]) -> None:
    url, open_one = opening
    with trio.fail_after(BOUND):
        async with open_one(url) as store, AsyncExitStack() as stack:
            victims = [await stack.enter_async_context(open_one(url)) for _ in range(VICTIMS)]
            for each in victims:
                each.leases._renew = no_renewal  # noqa: SLF001
            for number in range(ROUNDS):
                await race(store, dict(zip((f"{number} {each}" for each in range(VICTIMS)), victims, strict=True)))


async def race(store: RedisStore | PostgresStore, victims: dict[str, RedisStore | PostgresStore]) -> None:
    """Let each process write until it is buried; check that nothing of it came later."""
    written: dict[str, int] = {}

    async def bury(name: str) -> None:
        while not await store.bury(name):  # noqa: ASYNC110  no event of ours
            await trio.sleep(0.01)
        written[name] = len(await store.list(name, limit=100_000))

    for name, victim in victims.items():
        await victim.join(name)
    async with trio.open_nursery() as nursery:
        for name, victim in victims.items():
            nursery.start_soon(write_until_fenced, victim, name)
            nursery.start_soon(bury, name)
    assert written == {name: len(await store.list(name, limit=100_000)) for name in victims}
    assert sum(written.values()) > VICTIMS
