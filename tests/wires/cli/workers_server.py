"""A server for the tests of workers: each tool says in which process it runs."""

from __future__ import annotations

import os
import sys
import time

import trio

from trio_mcp import Context, Server

server = Server("crew", version="1")


@server.tool
async def where() -> str:
    return str(os.getpid())


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def order(ctx: Context) -> str:
    """Ask, in a call that cannot be replayed."""
    began = os.getpid()
    answer = await ctx.elicit("Really?", bool)
    return f"{answer.action} {began} {os.getpid()}"


@server.tool(resume="replay")
async def book(ctx: Context) -> str:
    """Ask, in a call that any process can carry on."""
    return f"{(await ctx.elicit('Really?', bool)).action} {os.getpid()}"


@server.tool(task=True)
async def bake() -> str:
    await trio.sleep(0.2)
    return f"baked {os.getpid()}"


@server.tool(task=True, resume="replay")
async def stew(ctx: Context) -> str:
    """Say in a file where it runs, and end in another process than the first."""
    first = await ctx.step("first", os.getpid)
    if first == os.getpid():
        print(f"stewing in {first}", file=sys.stderr)
        await trio.sleep_forever()
    return f"stewed {os.getpid()}"


@server.tool
async def nap(ctx: Context, seconds: float) -> str:
    await ctx.report_progress(0.5)
    await trio.sleep(seconds)
    return f"rested {os.getpid()}"


@server.tool
async def block(seconds: float) -> str:
    time.sleep(seconds)  # noqa: ASYNC251  it is what the test is about
    return "done"
