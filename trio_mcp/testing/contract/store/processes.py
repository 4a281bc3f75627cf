"""Rules about processes: who lives, what a killed process leaves, and several that use one store."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio

from ....storage import Record, Store
from .cases import Opened, StoreTrait, store_rule
from .child import COUNTS, NODE, count, run

LINES: Final = 20
"""Writes after which the other process is killed."""


class Lines:
    """The lines that the other process prints."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._buffer = b""

    async def next(self) -> str:
        """Return the next line."""
        assert self.process.stdout is not None
        while b"\n" not in self._buffer:
            some = await self.process.stdout.receive_some()
            assert some, "the other process has ended"
            self._buffer += some
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    async def kill(self) -> list[int]:
        """Kill the process, and return the numbers that it has printed until then and that were not read yet."""
        self.process.kill()
        assert self.process.stdout is not None
        async for some in self.process.stdout:
            self._buffer += some
        await self.process.wait()
        return [int(line) for line in self._buffer.split(b"\n")[:-1]]


@asynccontextmanager
async def other_process(opened: Opened, task: str) -> AsyncIterator[Lines]:
    """Start another process with the same store, which is killed at the end."""
    maker = type(opened.maker)
    command = [
        *(sys.executable, "-c", f"from {run.__module__} import run; run()"),
        *(maker.__module__, maker.__qualname__, str(opened.place), task),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, env=environment)
    lines = Lines(process)
    try:
        assert await lines.next() == "joined"
        yield lines
    finally:
        with trio.CancelScope(shield=True):
            process.kill()
            await process.wait()
            assert process.stdout is not None
            await process.stdout.aclose()


async def all_of(store: Store, kind: str) -> list[Record]:
    found: list[Record] = []
    while page := await store.list(kind, after=found[-1].key if found else "", limit=1000):
        found += page
    return found


@store_rule()
async def a_process_lives_from_when_it_has_joined(opened: Opened) -> None:
    await opened.store.join("here")
    assert await opened.store.is_alive("here")
    await opened.check_dead("elsewhere")


@store_rule()
async def the_name_of_a_process_may_be_any_text(opened: Opened) -> None:
    names = ["eu.prod 1", "../up", "ä", "a/b", "x" * 300, "."]
    for name in names:
        await opened.store.join(name)
        assert await opened.store.is_alive(name)
    await opened.check_dead("up")


@store_rule(StoreTrait.SHARED)
async def a_store_that_is_closed_says_that_its_process_does_not_live(opened: Opened) -> None:
    async with opened.open_again() as store:
        await store.join("second")
        assert await opened.store.is_alive("second")
    await opened.check_dead("second")


@store_rule(StoreTrait.SHARED)
async def what_one_process_has_written_another_reads(opened: Opened) -> None:
    async with other_process(opened, "write") as lines:
        await lines.next()
        record = await opened.store.read("left", f"{1:09d}")
        assert record is not None
        assert record.value == b"1"


@store_rule(StoreTrait.SHARED)
async def a_killed_process_is_dead_at_once_or_when_its_lease_has_lapsed(opened: Opened) -> None:
    async with other_process(opened, "write") as lines:
        assert await opened.store.is_alive(NODE)
        await lines.kill()
        await opened.check_dead(NODE)


@store_rule(StoreTrait.SHARED, StoreTrait.DURABLE)
async def a_killed_process_loses_nothing_that_it_has_written(opened: Opened) -> None:
    async with other_process(opened, "write") as lines:
        for number in range(1, LINES + 1):
            assert await lines.next() == str(number)
        confirmed = max([LINES, *await lines.kill()])
    async with opened.open_again() as store:
        left, right = await all_of(store, "left"), await all_of(store, "right")
        entries = await store.entries("log", "child", 0, 1_000_000)
    # Whole, and at most one more than it could tell of.
    assert [record.key for record in left] == [record.key for record in right]
    assert [record.value for record in left] == list(entries)
    assert confirmed <= len(entries) <= confirmed + 1


@store_rule(StoreTrait.SHARED)
async def several_processes_write_into_one_store(opened: Opened) -> None:
    async with other_process(opened, "count") as lines:
        for number in range(1, COUNTS + 1):
            await count(opened.store)
            assert await lines.next() == str(number)
    record = await opened.store.read("count", "all")
    assert record is not None
    assert int(record.value) == 2 * COUNTS
