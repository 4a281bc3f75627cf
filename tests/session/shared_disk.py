"""Processes of one server that live at the same time and share a disk; a test defines the tool that they offer."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio
from crashing_store import Disk
from late_store import LateStore
from talk import Round, Talk, accept, talk_to
from task_process import KEYS

from trio_mcp import Context, Server, ServiceOptions


class Shop:
    """A tool, `order`, and what it has done in all processes."""

    def __init__(self, resume: str = "replay") -> None:
        self.disk, self.go_on, self.resume = Disk(), trio.Event(), resume
        self.done: list[str] = []

    async def order(self, ctx: Context) -> str:
        """Ask, ship, and wait."""
        await ctx.elicit("Sure?", bool)
        await ctx.step("ship", self.does("ship"))
        await self.go_on.wait()
        return "shipped"

    def does(self, what: str) -> Callable[[], None]:
        return functools.partial(self.done.append, what)

    def add_tools(self, server: Server) -> None:
        server.tool(resume=self.resume)(self.order)  # type: ignore[call-overload]

    @asynccontextmanager
    async def process(self, **options: Any) -> AsyncIterator[tuple[LateStore, Talk]]:
        """A process, which ends with the block."""
        store = LateStore(self.disk)
        server = Server("shop", version="1", options=ServiceOptions(**{"keys": KEYS, "store": store, **options}))
        self.add_tools(server)
        async with talk_to(server) as talk:
            yield store, talk

    async def start(self, stack: AsyncExitStack) -> Talk:
        """Start a process, which ends with the stack."""
        _, talk = await stack.enter_async_context(self.process())
        return talk

    async def asked(self) -> Round:
        """Return the round of a call whose process has ended."""
        async with self.process() as (store, talk):
            asked = await talk.round(talk.leg("order"))
            store.crash()
            return asked


def yes(asked: Round, talk: Talk) -> int:
    """Send the next leg, with the answer of a user that accepts."""
    return asked.leg({asked.key: accept(value=True)}, talk=talk)  # type: ignore[return-value]
