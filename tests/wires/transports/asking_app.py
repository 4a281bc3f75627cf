"""A server whose tools ask, for tests of the client that answers. Usage: asking_app.py; it speaks over stdio."""

from __future__ import annotations

import os

import trio

from trio_mcp import Context, Server

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


if __name__ == "__main__":
    server.run()
