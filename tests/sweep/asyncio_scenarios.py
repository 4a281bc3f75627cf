"""Bodies on asyncio that are swept, and an asyncio loop that Trio steps, so that a run can be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context as ContextVariables
from typing import Any

import pytest
import trio
from scenarios import effects

from trio_mcp import Context, Server
from trio_mcp.bridge import Host

on_asyncio = Server("asyncio", version="1", asyncio=True)


class SteppedLoop(Host):
    """An asyncio loop without time and without I/O, of which Trio runs one turn whenever something was called in it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.calls = set[Any]()
        self._token = trio.lowlevel.current_trio_token()
        self._is_stepped = False

    def start(self, function: Callable[[], object], context: ContextVariables) -> None:
        self.loop.call_soon(function, context=context)
        self._step_soon()

    def settle(self, function: Callable[[], object]) -> None:
        function()
        self._step_soon()

    def to_trio(self, function: Callable[[], object]) -> None:
        function()

    def _step_soon(self) -> None:
        if not self._is_stepped:
            self._is_stepped = True
            self._token.run_sync_soon(self._step)

    def _step(self) -> None:
        self._is_stepped = False
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()
        # Trio has a turn between two of asyncio.
        if self.loop._ready:  # type: ignore[attr-defined]  # noqa: SLF001  no public way tells it
            self._step_soon()


@contextmanager
def stepped_loops(patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give each Trio run an asyncio loop that it steps itself."""
    loops = dict[trio.lowlevel.TrioToken, SteppedLoop]()

    def current_host() -> SteppedLoop:
        token = trio.lowlevel.current_trio_token()
        if token not in loops:
            loops[token] = SteppedLoop()
        return loops[token]

    patch.setattr("trio_mcp.bridge.to_asyncio.current_host", current_host)
    patch.setattr("trio_mcp.server.asyncio_bodies.current_host", current_host)
    try:
        yield
    finally:
        for host in loops.values():
            assert not asyncio.all_tasks(host.loop)
            host.loop.close()


@on_asyncio.tool
async def plainly() -> str:
    """Wait for asyncio, and return."""
    await asyncio.sleep(0)
    effects.did("plainly")
    return "done"


@on_asyncio.tool
async def asking_twice(ctx: Context) -> str:
    """Ask, wait for asyncio, report, and ask again."""
    first = await ctx.elicit("First?", int)
    effects.did("first")
    await asyncio.sleep(0)
    await ctx.progress(1)
    second = await ctx.elicit("Second?", int)
    effects.did("second")
    return f"{first} {second}"


@on_asyncio.tool
async def cleaning(ctx: Context) -> str:
    """Clean up on asyncio, wherever it is cancelled."""
    lock = asyncio.Lock()
    try:
        async with lock:
            await ctx.progress(1)
            await ctx.elicit("Go on?", int)
    finally:
        await asyncio.sleep(0)
        assert not lock.locked()
    effects.did("cleaned")
    return "done"


@on_asyncio.tool
async def grouped(ctx: Context) -> str:
    """Ask in two tasks at once, one of which waits for asyncio first.

    No `TaskGroup`: in CPython 3.11 one that is cancelled keeps its tasks until the next garbage
    collection.
    """

    async def ask(late: bool) -> object:
        if late:
            await asyncio.sleep(0)
        return await ctx.elicit(f"Late: {late}?", int)

    answers = await asyncio.gather(ask(True), ask(False))
    effects.did("grouped")
    return str(len(answers))


@on_asyncio.tool
async def raising_later(ctx: Context) -> str:
    """Fail in an unexpected way, behind a question."""
    await ctx.elicit("Go on?", int)
    await asyncio.sleep(0)
    raise RuntimeError("unexpected")


@on_asyncio.tool
async def stepping(ctx: Context) -> str:
    """Do something once, on asyncio, and ask afterwards."""

    async def book() -> str:
        await asyncio.sleep(0)
        effects.did("booked")
        return "booked"

    booked = await ctx.step("book", book)
    await ctx.elicit("Pay?", int)
    return booked
