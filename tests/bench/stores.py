"""What a store costs: `python tests/bench/stores.py [FOLDER]`.

Prints the time of a write alone and of one of 16 at once, the CPU time of the whole process for each, and the time to open a file
with 10,000 records and list them all.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import trio

from trio_mcp.session import KeyRing, MemoryBudget
from trio_mcp.stores import Put, Record, Store, open_store
from trio_mcp.stores.sqlite import open_sqlite

KEYS = KeyRing([bytes(32)])
SIZE = 500
WRITES = 1600
RECORDS = 10_000
ROUNDS = 5


async def write_some(store: Store, name: str, number: int) -> None:
    for each in range(number):
        await store.write([Put(Record("task", f"{name}-{each:06d}", bytes(SIZE), "owner", time.time() + 1000))])


async def writes(
    open_one: Callable[[str], AbstractAsyncContextManager[Store]], folder: str, at_once: int
) -> tuple[float, float]:
    """Return the seconds, and the seconds of CPU time, of a write."""
    async with open_one(str(Path(folder) / f"{time.monotonic_ns()}.db")) as store:
        await write_some(store, "warm", 50)
        began, cpu = time.perf_counter(), time.process_time()
        async with trio.open_nursery() as nursery:
            for number in range(at_once):
                nursery.start_soon(write_some, store, f"{number}", WRITES // at_once)
        return (time.perf_counter() - began) / WRITES, (time.process_time() - cpu) / WRITES


async def opening(folder: str) -> float:
    """Return the seconds that it takes to open a file with many records and to open each of them."""
    path = str(Path(folder) / f"{time.monotonic_ns()}.db")
    async with open_store(path, KEYS, MemoryBudget()) as store:
        for start in range(0, RECORDS, 1000):
            await store.write(
                [Put(Record("task", f"{start + each:06d}", bytes(SIZE), "owner")) for each in range(1000)]
            )
    began = time.perf_counter()
    async with open_store(path, KEYS, MemoryBudget()) as store:
        found, after = 0, ""
        while page := await store.list("task", after=after, limit=200):
            found, after = found + len(page), page[-1].key
        assert found == RECORDS
        return time.perf_counter() - began


def main(folder: str) -> None:
    stores: dict[str, Callable[[str], AbstractAsyncContextManager[Store]]] = {
        "memory": lambda _path: open_store(None, None, MemoryBudget()),
        "SQLite": open_sqlite,
        "SQLite, sealed": lambda path: open_store(path, KEYS, MemoryBudget()),
    }
    for name, open_one in stores.items():
        for at_once in (1, 16):
            rounds = [trio.run(partial(writes, open_one, folder, at_once)) for _ in range(ROUNDS)]
            took, cpu = (statistics.median(column) * 1e6 for column in zip(*rounds, strict=True))
            print(f"{name:<16}{at_once:>3} at once: {took:6.0f} us a write, {cpu:6.0f} us of CPU time")
    took = statistics.median(trio.run(opening, folder) for _ in range(ROUNDS))
    print(f"open a sealed file and list {RECORDS} records: {took:.3f} s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(temporary)
