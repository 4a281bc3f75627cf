"""Many look-ups of a SQLite store at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from trio_mcp.stores import Put, Record, StoreError, sqlite
from trio_mcp.stores.sqlite import SqliteStore, open_sqlite

BOUND = 20


@asynccontextmanager
async def store_with(path: Path, records: int) -> AsyncIterator[SqliteStore]:
    with trio.fail_after(BOUND):
        async with open_sqlite(str(path / "state.db")) as store:
            await store.write([Put(Record("note", str(number), str(number).encode())) for number in range(records)])
            yield store


async def test_look_ups_that_wait_together_share_a_turn_of_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    run_all = sqlite.run_all
    monkeypatch.setattr(sqlite, "run_all", lambda runs: turns.append(len(runs)) or run_all(runs))
    found: dict[int, bytes] = {}

    async def read(store: SqliteStore, number: int) -> None:
        record = await store.read("note", str(number))
        assert record is not None
        found[number] = record.value

    async with store_with(tmp_path, 500) as store, trio.open_nursery() as nursery:
        for number in range(500):
            nursery.start_soon(read, store, number)
    assert found == {number: str(number).encode() for number in range(500)}
    assert sum(turns) == 500
    assert len(turns) <= 500 / sqlite.MOST_AT_ONCE + 2


async def test_a_look_up_that_is_given_up_or_fails_leaves_the_others_alone(tmp_path: Path) -> None:
    values: list[bytes | None] = []

    async def read(store: SqliteStore, key: str) -> None:
        record = await store.read("note", key)
        values.append(None if record is None else record.value)

    async def fail(store: SqliteStore) -> None:
        with pytest.raises(StoreError):
            await store.read("note", "\ud800")

    async with store_with(tmp_path, 2) as store, trio.open_nursery() as nursery:
        gone = trio.CancelScope()
        nursery.start_soon(read, store, "0")
        nursery.start_soon(fail, store)
        with gone:
            gone.cancel()
            await store.read("note", "1")
        nursery.start_soon(read, store, "1")
        nursery.start_soon(read, store, "2")
    assert sorted(values, key=str) == sorted([b"0", b"1", None], key=str)


async def test_a_look_up_that_waits_when_the_store_is_closed_ends(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        async with store_with(tmp_path, 1) as store:

            async def read(task_status: trio.TaskStatus[None]) -> None:
                task_status.started()
                record = await store.read("note", "0")
                assert record is not None

            await nursery.start(read)
