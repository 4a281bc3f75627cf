"""What tests of asyncio programs share."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

BOUND = 30.0


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a program on asyncio, and check that it leaves no task, thread or descriptor."""

    async def bounded() -> T:
        async with asyncio.timeout(BOUND):
            result = await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    before = descriptors()
    try:
        return asyncio.run(bounded())
    finally:
        assert descriptors() == before
        assert threads() == []


def on_asyncio(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Let `run` run a test."""

    @functools.wraps(test)
    def bounded(*args: object, **options: object) -> None:
        run(lambda: test(*args, **options))

    return bounded


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> list[str]:
    """The names of all threads but this one, and those that Trio keeps for a few seconds to use them again."""
    names = [thread.name for thread in threading.enumerate() if thread is not threading.current_thread()]
    return [name for name in names if not name.startswith("Trio thread") and name != "MainThread"]


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until a condition holds; `run` bounds it."""
    while not condition():  # noqa: ASYNC110  what changes it knows no event of asyncio
        await asyncio.sleep(0)
