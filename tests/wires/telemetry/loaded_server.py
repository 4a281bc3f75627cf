"""A server for the tests of its metrics, with tools that succeed, fail, hang, block and ask."""

from __future__ import annotations

import os
import time

import trio

from trio_mcp import Context, Server
from trio_mcp.session import Limits, ServiceOptions

server = Server("loaded", options=ServiceOptions(actors=Limits(actors=8), cancel_grace=0.2, watchdog=0.05))


@server.tool
async def where() -> str:
    return str(os.getpid())


@server.tool
async def fail() -> None:
    raise ValueError("no")


@server.tool
async def block() -> None:
    time.sleep(0.2)  # noqa: ASYNC251  it is what the watchdog is to see


@server.tool(timeout=0.05)
async def hang() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(1)


@server.tool(timeout=0.05)
async def slow() -> None:
    await trio.sleep_forever()


@server.tool
async def nap() -> None:
    await trio.sleep(1)


@server.tool(resume="replay")
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Really?", bool)).action


@server.tool(task=True)
async def work() -> str:
    return "done"
