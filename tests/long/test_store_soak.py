"""A store in a file does not grow with what has passed through it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from trio_mcp.stores import Append, Forget, Put, Record
from trio_mcp.stores.sqlite import SqliteStore, open_sqlite

TASKS, AT_ONCE, LIVE, FIRST = 100_000, 20, 1_000, 2_000


class Clock:
    """Goes on by a second for each task."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def bytes_of(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        pages, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * size)


async def run_tasks(store: SqliteStore, clock: Clock, first: int) -> None:
    """Make some tasks with logs, and end them, half of which forget their logs."""
    until, keys = clock.now + LIVE, [f"{number:012d}" for number in range(first, first + AT_ONCE)]
    await store.write([Put(Record("task", key, bytes(600), key[-2:], until)) for key in keys])
    await store.write([Append("call", key, 1, [bytes(100)] * 3, until) for key in keys])
    ended = [Put(Record("task", key, bytes(900), key[-2:], until, 1)) for key in keys]
    await store.write([*ended, *(Forget("call", key) for key in keys[::2])])
    clock.now += AT_ONCE


async def test_a_hundred_thousand_tasks_leave_the_file_as_large_as_the_first_of_them(tmp_path: Path) -> None:
    path, clock, early = tmp_path / "state.db", Clock(), 0
    async with open_sqlite(str(path), clock=clock) as store:
        for done in range(0, TASKS, AT_ONCE):
            await run_tasks(store, clock, done)
            if done < FIRST:
                early = max(early, bytes_of(path))
        assert bytes_of(path) <= early * 1.1
    assert path.stat().st_size <= early * 1.1
