"""A server whose tools ask, for tests of the client that answers. Usage: asking_app.py [tasks]; it speaks over stdio.

With `tasks`, what it asks runs as tasks at its client.
"""

from __future__ import annotations

import os
import sys

import trio

from trio_mcp import Context, Server, ServiceOptions, TaskOptions

server = Server("asking", version="1")
decided = trio.Event()


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user."""
    return str(await ctx.elicit.strict("Which?", str))


@server.tool
async def wonder(ctx: Context) -> str:
    """Ask the model."""
    return (await ctx.sample("why?")).text


@server.tool
async def ask_or_decide(ctx: Context) -> str:
    """Ask the user, unless `decide` is called first."""

    async def wait(_ctx: Context) -> str:
        await decided.wait()
        return "decided"

    return str(await ctx.branch_race(ask, wait))


@server.tool
async def decide() -> None:
    """Decide what `ask_or_decide` has asked."""
    decided.set()


@server.tool
async def die() -> None:
    """End the process at once."""
    os._exit(1)


@server.tool
async def double(n: int) -> int:
    """Double a number."""
    return 2 * n


as_tasks = Server("asking", version="1", options=ServiceOptions(tasks=TaskOptions(ask_as_tasks=True)))
for tool in (ask, wonder, double):
    as_tasks.tool(tool)


if __name__ == "__main__":
    (as_tasks if "tasks" in sys.argv else server).run()
