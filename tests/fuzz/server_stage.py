"""The server that is fuzzed: it returns, asks, reports, waits and refuses, and has items of every kind."""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import trio
from pydantic import BaseModel

from trio_mcp import Context, Server, ToolError
from trio_mcp.session import MemoryBudget, ServiceOptions
from trio_mcp.types import ToolAnnotations

LIFETIME = 4000.0
"""Seconds after which nothing of a peer that has gone may be left: longer than every time that the server grants."""


class Place(BaseModel):
    name: str
    at: tuple[float, float] = (0.0, 0.0)


@cache
def fuzzed_server() -> FuzzedServer:
    """Return the one server: to make it takes longer than to serve a hostile client."""
    return FuzzedServer()


class FuzzedServer:
    """`go_on` releases the tool `wait`; each run sets a separate event."""

    def __init__(self) -> None:
        self.go_on = trio.Event()
        # A separate budget, so that what a run leaves in it is seen.
        options = ServiceOptions(watchdog=math.inf, memory=MemoryBudget())
        self.server = Server("fuzzed", version="1", page_size=4, options=options)
        for tool in (self.echo, self.typed, self.ask, self.sample, self.folders, self.both, self.report, self.wait):
            self.server.add_tool(tool)
        self.server.add_tool(self.refuse, annotations=ToolAnnotations(read_only_hint=True))
        self.server.add_prompt(self.greet)
        self.server.add_resource("note:today", self.note)
        self.server.add_resource("page://{path*}/{name}{?q}", self.page)
        self.server.complete(prompt="greet", argument="who")(self.names)

    async def echo(self, text: str) -> str:
        return text

    async def typed(
        self, numbers: list[int], mode: Literal["fast", "slow"] = "fast", place: Place | None = None
    ) -> list[int]:
        return numbers[:10]

    async def ask(self, ctx: Context) -> str:
        return (await ctx.elicit("How many?", int)).action

    async def sample(self, ctx: Context) -> str:
        return (await ctx.sample("Say something.", max_tokens=5)).text[:100]

    async def folders(self, ctx: Context) -> int:
        return len(await ctx.roots())

    async def both(self, ctx: Context) -> list[str]:
        """Ask two questions at the same time."""
        return list(await ctx.branch_all(self.ask, self.sample))

    async def report(self, ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        await ctx.log("warning", {"half": True}, logger="fuzzed")
        await ctx.progress(2, 2)
        return "done"

    async def wait(self, ctx: Context, name: str = "") -> str:
        await ctx.progress(1)
        await self.go_on.wait()
        return "waited"

    async def refuse(self) -> str:
        raise ToolError("no")

    async def greet(self, who: str) -> str:
        return f"Greet {who[:100]}."

    async def note(self) -> str:
        return "nothing"

    async def page(self, path: list[str], name: str, q: str = "") -> str:
        return name[:100]

    async def names(self, value: str) -> list[str]:
        return [value[:100] + "da", "Grace"]
