"""A server for the tests of workers: each tool says in which process it runs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import trio

from trio_mcp import Context, Server, ServiceOptions, TaskOptions

options = ServiceOptions(tasks=TaskOptions(poll_interval=0.1))
server = Server("crew", version="1", options=options)


@server.tool
async def where() -> str:
    return str(os.getpid())


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
async def order(ctx: Context, item: str = "it") -> str:
    """Ask, in a call that cannot be replayed."""
    began = os.getpid()
    answer = await ctx.elicit(f"Really {item}?", bool)
    return f"{answer.action} {began} {os.getpid()}"


@server.tool(resume="replay")
async def book(ctx: Context, item: str = "it") -> str:
    """Ask, in a call that any process can carry on."""
    return f"{(await ctx.elicit(f'Really {item}?', bool)).action} {os.getpid()}"


@server.tool
def pay(item: str) -> str:
    """Have an effect: a line in a file that all processes write to."""
    with Path(os.environ["EFFECTS"]).open("a") as effects:
        effects.write(f"{item}\n")
    return f"paid {os.getpid()}"


@server.tool
async def look(ctx: Context, item: str) -> str:
    """Report progress."""
    await ctx.progress(1, 2)
    return f"seen {item} {os.getpid()}"


@server.tool(task=True)
async def bake(item: str = "it") -> str:
    await trio.sleep(0.05)
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
async def nap(ctx: Context) -> str:
    """Ask, and sleep until the caller leaves."""
    await ctx.elicit("Tired?", bool)
    print("nap begins", file=sys.stderr)
    try:
        await trio.sleep_forever()
    finally:
        print("nap ends", file=sys.stderr)


@server.tool
async def block(seconds: float) -> str:
    time.sleep(seconds)  # noqa: ASYNC251  it is what the test is about
    return "done"


if __name__ == "__main__":
    server.run(sys.argv[1], port=int(sys.argv[2]))
