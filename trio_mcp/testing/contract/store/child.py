"""A second process with the same store; its arguments are the module and the class of the maker, the place, and the task.

It prints a line when it has joined, and one for each write that was made.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Final, cast

import trio

from ....storage import Append, Put, Record, Store, StoreConflict
from .cases import StoreMaker

NODE: Final = "child"
COUNTS: Final = 30


async def main(maker: StoreMaker, place: Path, task: str) -> None:
    async with maker.open(place) as store:
        await store.join(NODE)
        say("joined")
        for number in numbers(task):
            await (count(store) if task == "count" else write(store, number))
            say(number)


def numbers(task: str) -> Iterator[int]:
    return iter(range(1, COUNTS + 1)) if task == "count" else itertools.count(1)


async def write(store: Store, number: int) -> None:
    """Write two records and an entry with this number."""
    value = b"%d" % number
    await store.write(
        [
            Put(Record("left", f"{number:09d}", value)),
            Put(Record("right", f"{number:09d}", value)),
            Append("log", "child", number, [value]),
        ]
    )


async def count(store: Store) -> None:
    """Add one to a record that other processes add to as well."""
    while True:
        found = await store.read("count", "all")
        version, value = (0, 0) if found is None else (found.version, int(found.value))
        try:
            await store.write([Put(Record("count", "all", b"%d" % (value + 1), version=version))])
        except StoreConflict:
            continue
        return


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def run() -> None:
    """Do what the arguments of the process say."""
    module, name, where, what = sys.argv[1:]
    trio.run(main, cast("StoreMaker", getattr(import_module(module), name)()), Path(where), what)
