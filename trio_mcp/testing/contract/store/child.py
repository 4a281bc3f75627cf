"""A second process with the same store; its arguments are the module and the class of the maker, the place, and the task.

It prints a line when it has joined, and one for each write that was made, or each notice that it has received.
"""

from __future__ import annotations

import itertools
import sys
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Final, cast

import trio

from ....storage import Append, Fenced, Missed, Notice, Put, Record, SharedStore, Store, StoreConflict, StoreTimeout
from .cases import StoreMaker

NODE: Final = "child"
SECOND_NODE: Final = "child again"
COUNTS: Final = 30
BLOCKED_SECONDS: Final = 2.5
"""Longer than a lease."""


async def main(maker: StoreMaker, place: Path, task: str) -> None:
    async with maker.open(place) as store:
        await store.join(NODE)
        await TASKS[task](store)


async def write_on(store: Store) -> None:
    """Write until this process is killed; one that is buried goes on under another name."""
    say("joined")
    for number in itertools.count(1):
        try:
            await write_once(store, number)
        except Fenced:
            say("fenced")
            await store.join(SECOND_NODE)
            await write_once(store, number)
        say(number)


async def count_on(store: Store) -> None:
    say("joined")
    for number in range(1, COUNTS + 1):
        await count(store)
        say(number)


async def block(_store: Store) -> None:
    """Block the event loop again and again."""
    say("joined")
    while True:
        await trio.lowlevel.checkpoint()
        time.sleep(BLOCKED_SECONDS)  # noqa: ASYNC251  that is the point


async def listen(store: Store) -> None:
    """Print what is announced."""
    assert isinstance(store, SharedStore)
    async with store.listen() as notices:
        say("joined")
        async for notice in notices:
            say(shown(notice))


def shown(notice: Notice | Missed) -> str:
    return f"{notice.topic} {notice.content.hex()}" if isinstance(notice, Notice) else "missed"


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


async def write_once(store: Store, number: int) -> None:
    """Write that; if the store does not say in time whether it has, as after a stop of this process, ask it."""
    while True:
        with suppress(StoreTimeout):
            await write(store, number)
            return
        with suppress(StoreTimeout):
            if await store.read("left", f"{number:09d}") is not None:
                return
        await trio.lowlevel.checkpoint()


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


TASKS: Final = {"write": write_on, "count": count_on, "block": block, "listen": listen}


def say(what: object) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


def run() -> None:
    """Do what the arguments of the process say."""
    module, name, where, what = sys.argv[1:]
    trio.run(main, cast("StoreMaker", getattr(import_module(module), name)()), Path(where), what)
