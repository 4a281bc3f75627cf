"""A server with a small memory budget, as a process: `budgeted_app.py BYTES` says its port, and what its budget holds when asked.

What it asks and keeps for clients that have gone ends after a few seconds, so that a test can see everything given back.
"""

from __future__ import annotations

import resource
import sys

import trio

from trio_mcp import Context, Server
from trio_mcp.session import Limits, MemoryBudget, ServiceOptions
from trio_mcp_transports.http import HttpLimits, serve_http

SECONDS = 4.0

options = ServiceOptions(
    memory=MemoryBudget(int(sys.argv[1])), actors=Limits(park_ttl=SECONDS), outcome_grace=SECONDS, watchdog=60
)
server = Server("budgeted", version="1", options=options)


@server.tool
async def ask(ctx: Context, items: list[object] = []) -> str:  # noqa: B006  they are there to be held
    return (await ctx.elicit("Sure?", bool)).action


@server.tool
async def wait(items: list[object] = []) -> None:  # noqa: B006
    await trio.sleep_forever()


@server.tool
async def make(size: int) -> str:
    return "x" * size


@server.tool
async def echo(text: str) -> str:
    return text


async def tell() -> None:
    """Answer each line of stdin with the bytes that are drawn, and how often something was refused."""
    while await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        memory = options.memory.statistics()
        print(memory.drawn, memory.refused, flush=True)


async def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with trio.open_nursery() as nursery:
        limits = HttpLimits(session_idle=SECONDS)
        [url, *_] = await nursery.start(
            lambda task_status: serve_http(
                server, port=0, sse_path="/sse", limits=limits, announce=False, task_status=task_status
            )
        )
        print(url, flush=True)
        await tell()
        nursery.cancel_scope.cancel()


trio.run(main)
