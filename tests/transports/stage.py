"""A server for the tests of transports, whose tools note what becomes of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import trio
import trio.testing

from trio_mcp import CancelReason, Context, Server, ServiceOptions


@dataclass
class Talk:
    """One run of the tool `talk`, which performs requested actions one after the other."""

    orders: trio.MemorySendChannel[object]
    heard: trio.MemoryReceiveChannel[object]
    done: int = 0
    reason: CancelReason | None = None
    over: trio.Event = field(default_factory=trio.Event)

    async def say(self, *numbers: int) -> None:
        """Let it report this progress, and return when nothing more happens by itself."""
        for number in numbers:
            self.orders.send_nowait(number)
        await trio.testing.wait_all_tasks_blocked()

    async def end_stream(self, retry: float | None = None) -> None:
        self.orders.send_nowait(("end", retry))
        await trio.testing.wait_all_tasks_blocked()

    async def answer(self, text: str = "done") -> None:
        self.orders.send_nowait(text)
        await trio.testing.wait_all_tasks_blocked()


class Stage:
    """Counts what runs, holds `wait` until the test lets it go on, and keeps the reason for which it ended.

    Each run of `talk` is expected by name."""

    def __init__(self, options: ServiceOptions | None = None) -> None:
        self.server = Server("stage", version="1.0", options=options or ServiceOptions())
        self.runs = 0
        self.waiting = 0
        self.started = trio.Event()
        self.go_on = trio.Event()
        self.ended = trio.Event()
        self.reason: CancelReason | None = None
        self.talks: dict[str, Talk] = {}
        for tool in (self.echo, self.wait, self.ask, self.report, self.flood, self.whoami, self.talk):
            self.server.tool(tool)
        self.server.add_resource("news:today", lambda: "")

    async def echo(self, text: str) -> str:
        self.runs += 1
        return text

    async def wait(self, ctx: Context) -> str:
        self.waiting += 1
        self.started.set()
        try:
            await ctx.progress(1)
            await self.go_on.wait()
        finally:
            self.waiting -= 1
            self.reason = ctx.cancel_reason
            self.ended.set()
        return "waited"

    async def ask(self, ctx: Context) -> str:
        self.runs += 1
        answer = await ctx.elicit("How many?", int)
        return f"got {answer.content}" if answer.action == "accept" else answer.action

    async def report(self, ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await ctx.log("info", "half")
        await trio.sleep(1)
        await ctx.progress(2, 2, "whole")
        return "done"

    async def flood(self, ctx: Context) -> str:
        for number in range(1, 1001):
            await ctx.progress(number)
        return "said it all"

    async def whoami(self, ctx: Context) -> str:
        return f"{ctx.request.principal} {ctx.request.headers.get('x-color')}"

    def expect(self, name: str = "a") -> Talk:
        orders, heard = trio.open_memory_channel[object](math.inf)
        self.talks[name] = Talk(orders, heard)
        return self.talks[name]

    async def talk(self, ctx: Context, name: str = "a") -> str:
        talk = self.talks[name]
        try:
            async for order in talk.heard:
                if isinstance(order, str):
                    return order
                await self._obey(ctx, order)
                talk.done += 1
        finally:
            talk.reason = ctx.cancel_reason
            talk.over.set()
        return "never told"

    async def _obey(self, ctx: Context, order: object) -> None:
        match order:
            case int(number):
                await ctx.progress(number)
            case ("end", float() | int() | None as retry):
                await ctx.end_stream(retry)
