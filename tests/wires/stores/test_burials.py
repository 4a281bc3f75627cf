"""Burials that race with the writes of the process that is buried, and takeovers that race with them in a file."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from store_talk import BOUND, AnyStore, open_at

from trio_mcp.stores import (
    Append,
    EventsGone,
    Expect,
    Fenced,
    Put,
    Record,
    Store,
    StoreConflict,
    StoreError,
    postgres,
    redis,
)
from trio_mcp.stores.leased import LeasedStore
from trio_mcp.stores.leases import Renewal
from trio_mcp.stores.sqlite import open_sqlite

RACES = [30, pytest.param(int(os.environ.get("TRIO_MCP_RUNS", "10000")), marks=pytest.mark.long)]
VICTIMS = 10
"""Processes that are buried at a time."""
LEASE_SECONDS = 0.3
KEPT_SECONDS = 120.0
"""How long what they write is kept: longer than a race takes."""
SECONDS = 0.5
"""What a race may take more."""

T = TypeVar("T")


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (redis, postgres):
        monkeypatch.setattr(module, "LEASE_SECONDS", LEASE_SECONDS)


def no_renewal(_nodes: Mapping[str, bytes]) -> Renewal:
    raise StoreError("the lease of this test is not renewed")


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until the server answers: in thousands of races on a busy machine it is too late now and then."""
    while True:
        try:
            return await ask()
        except StoreError:
            await trio.sleep(0.01)


async def write_until_fenced(store: LeasedStore[object], name: str) -> None:
    number = 0
    while True:
        record = Record(name, f"{number}", b"", expires_at=time.time() + KEPT_SECONDS)
        try:
            await store.write([Put(record)])  # type: ignore[attr-defined]
        except Fenced:
            return
        except StoreError:
            await trio.sleep(0.01)
        number += 1


@pytest.mark.parametrize("races", RACES)
async def test_no_write_is_made_after_the_burial_of_its_process(namespace: str, races: int) -> None:
    with trio.fail_after(BOUND + SECONDS * races):
        async with open_at(namespace) as store, AsyncExitStack() as stack:
            victims = [await stack.enter_async_context(open_at(namespace)) for _ in range(VICTIMS)]
            for each in victims:
                each.leases._renew = no_renewal  # noqa: SLF001
            rounds, written = math.ceil(races / VICTIMS), 0
            for number in range(rounds):
                names = (f"{number} {each}" for each in range(VICTIMS))
                written += await race(store, dict(zip(names, victims, strict=True)))
            assert written > rounds * VICTIMS


async def race(store: AnyStore, victims: dict[str, AnyStore]) -> int:
    """Let each process write until it is buried; check that nothing of it came later, and return how much came before."""
    written: dict[str, int] = {}

    async def count(name: str) -> int:
        return len(await answered(partial(store.list, name, limit=100_000)))

    async def bury(name: str) -> None:
        while not await answered(partial(store.bury, name)):  # noqa: ASYNC110  no event of ours
            await trio.sleep(0.01)
        written[name] = await count(name)

    for name, victim in victims.items():
        await answered(partial(victim.join, name))
    async with trio.open_nursery() as nursery:
        for name, victim in victims.items():
            nursery.start_soon(write_until_fenced, victim, name)
            nursery.start_soon(bury, name)
    assert written == {name: await count(name) for name in victims}
    return sum(written.values())


# In a file nobody is buried: what a process writes names the record whose version changes with the takeover.


async def append_until_taken(store: Store, key: str) -> None:
    number = 0
    while True:
        number += 1
        entry = Append("log", key, number, [b""], time.time() + KEPT_SECONDS)
        try:
            await store.write([Expect("thing", key, 1), entry])
        except StoreConflict:
            return


async def entries_of(store: Store, key: str) -> int:
    try:
        return len(await store.entries("log", key, 0, 100_000))
    except EventsGone:
        return 0


@pytest.mark.parametrize("races", RACES)
async def test_no_write_to_a_file_is_made_after_another_process_has_taken_over_what_it_is_about(
    tmp_path: Path, races: int
) -> None:
    path = str(tmp_path / "state.db")
    with trio.fail_after(BOUND + SECONDS * races):
        async with open_sqlite(path) as one, open_sqlite(path) as other:
            for number in range(races):
                key = f"{number}"
                owned = Record("thing", key, b"", expires_at=time.time() + KEPT_SECONDS)
                await one.write([Put(owned)])
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(append_until_taken, one, key)
                    await trio.sleep(secrets.randbelow(3000) / 1e6)
                    await other.write([Put(owned._replace(version=1))])
                    found = await entries_of(other, key)
                assert found == await entries_of(one, key)
