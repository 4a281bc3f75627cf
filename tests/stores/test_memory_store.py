"""What only the store in memory has: limits, and nothing left of what has gone."""

from __future__ import annotations

import random

import pytest
from store_makers import Clock

from trio_mcp.session import MemoryBudget
from trio_mcp.stores import Append, Forget, MemoryStore, Put, Record, Remove, StoreFull, memory_store


def thing(key: str, value: bytes = b"", until: float = 1010.0, version: int = 0, owner: str = "me") -> Put:
    return Put(Record("thing", key, value, owner, until, version))


async def test_more_records_than_the_limit_are_refused_and_the_error_names_it() -> None:
    store = MemoryStore(records=2)
    await store.write([thing("a", until=1e12), thing("b", until=1e12, owner="you")])
    with pytest.raises(StoreFull, match="2 records"):
        await store.write([thing("c", until=1e12)])
    await store.write([Remove("thing", "a"), thing("c", until=1e12)])


@pytest.mark.parametrize("change", [thing("b", b"x" * 9_000), Append("log", "b", 1, [b"x" * 9_000])])
async def test_more_bytes_than_the_budget_has_are_refused(change: Put | Append) -> None:
    memory = MemoryBudget(10_000)
    store = MemoryStore(memory=memory, clock=Clock())
    await store.write([thing("a", b"x" * 2_000)])
    drawn = memory.drawn
    with pytest.raises(StoreFull, match="memory budget"):
        await store.write([change])
    assert memory.drawn == drawn
    assert await store.read("thing", "a") is not None


async def test_what_has_expired_gives_its_room_back() -> None:
    memory, clock = MemoryBudget(), Clock()
    store = MemoryStore(memory=memory, clock=clock)
    await store.write([thing("a", b"x" * 1000), Append("log", "a", 1, [b"x" * 1000], 1010.0)])
    await store.write([thing("a", b"x" * 10, 1020.0, 1)])
    clock.now = 1015
    assert [record.key for record in await store.list("thing")] == ["a"]
    clock.now = 1025
    assert not await store.list("thing")
    assert memory.drawn == 0


async def test_a_great_many_expire_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_store, "SLICE", 10)
    memory, clock = MemoryBudget(), Clock()
    store = MemoryStore(memory=memory, clock=clock)
    await store.write([thing(f"{number:03d}") for number in range(100)])
    clock.now = 1015
    for _ in range(10):
        assert not await store.list("thing")
    assert memory.drawn == 0


async def test_what_is_prolonged_again_and_again_leaves_nothing_behind() -> None:
    store = MemoryStore(clock=Clock())
    for number in range(10_000):
        await store.write([Append("log", "a", 1, [b""], 2000.0 + number)])
    assert len(store._expiring) < 2_000  # noqa: SLF001  nothing else tells


async def test_everything_that_is_drawn_is_given_back() -> None:
    memory, clock, rng = MemoryBudget(), Clock(), random.Random(1)
    store = MemoryStore(memory=memory, clock=clock)
    for _ in range(2_000):
        key, until = rng.choice("abc"), clock.now + rng.randrange(1, 20)
        found = await store.read("thing", key)
        put = thing(key, b"x" * rng.randrange(100), until, 0 if found is None else found.version)
        append = Append(
            "log", key, rng.randrange(1, 9), [b"x" * rng.randrange(9)] * rng.randrange(3), until, rng.choice([None, 2])
        )
        await store.write([rng.choice([put, append, Remove("thing", key), Forget("log", key)])])
        clock.now += rng.random()
    clock.now += 100
    await store.list("thing")
    assert memory.drawn == 0
    assert repr(store) == "<MemoryStore records=0 logs=0>"
