"""The store of the tests whose writes are late: what it does is what the rules about such stores rely on."""

from __future__ import annotations

import math

import pytest
import trio
from crashing_store import Disk
from late_store import LateStore, delayed, drawn
from trio.testing import MockClock

from trio_mcp.storage import Append, EventsGone, Put, Record, StoreConflict, StoreTimeout


def put(value: bytes, version: int = 0, kind: str = "key") -> Put:
    return Put(Record(kind, "k", value, version=version))


async def test_a_write_is_made_although_nothing_waits_for_it_any_more(autojump_clock: MockClock) -> None:
    store = LateStore(Disk(), delayed("key", 7))
    with trio.move_on_after(5):
        await store.write([put(b"late")])
    assert await store.read("key", "k") is None
    await trio.sleep(3)
    found = await store.read("key", "k")
    assert found is not None
    assert (found.value, store.on_its_way) == (b"late", [])


async def test_a_late_write_is_checked_when_it_is_made(autojump_clock: MockClock) -> None:
    store = LateStore(Disk(), delayed("key", 7, times=1))
    async with trio.open_nursery() as nursery:

        async def late() -> None:
            with pytest.raises(StoreConflict):
                await store.write([put(b"late")])

        nursery.start_soon(late)
        await trio.sleep(1)
        await store.write([put(b"sooner")])


async def test_a_lost_write_times_out_and_is_never_made(autojump_clock: MockClock) -> None:
    store = LateStore(Disk(), delayed("key", math.inf), patience=0.25)
    with pytest.raises(StoreTimeout):
        await store.write([put(b"lost")])
    await trio.sleep(1000)
    assert await store.read("key", "k") is None


async def test_what_is_on_its_way_is_made_after_the_end_of_the_process(autojump_clock: MockClock) -> None:
    disk = Disk()
    store = LateStore(disk, delayed("key", 7))
    with trio.move_on_after(1):
        await store.write([put(b"late")])
    store.crash()
    await trio.sleep(7)
    assert await LateStore(disk).read("key", "k") is not None


async def test_a_seed_gives_any_order(autojump_clock: MockClock) -> None:
    orders = set()
    for seed in range(8):
        disk = Disk()
        store = LateStore(disk, drawn(seed), patience=0)
        for kind in "abc":
            with pytest.raises(StoreTimeout):
                await store.write([put(b"", kind=kind)])
        await trio.sleep(10)
        orders.add("".join(kind for kind, _ in disk.records))
    assert len(orders) > 3


async def test_a_log_with_a_gap_cannot_be_read(autojump_clock: MockClock) -> None:
    store = LateStore(Disk(), lambda changes: 5.0 if changes[0] == Append("call", "k", 1, [b"1"]) else 0.0, patience=1)
    with pytest.raises(StoreTimeout):
        await store.write([Append("call", "k", 1, [b"1"])])
    await store.write([Append("call", "k", 2, [b"2"])])
    with pytest.raises(EventsGone):
        await store.entries("call", "k", 0, 10)
    assert await store.entries("call", "k", 1, 10) == [b"2"]
