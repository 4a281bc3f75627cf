"""A server whose tools ask, for tests of the client that answers, over stdio."""

from __future__ import annotations

import itertools
import os

import trio

from trio_mcp import Context, Server

server = Server("asking", version="1")


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user."""
    return str(await ctx.elicit.strict("Which?", str))


@server.tool
async def ask_model(questions: int, ctx: Context) -> None:
    """Ask the model so many questions at once, and report progress until all are answered."""
    async with trio.open_nursery() as reporting:
        reporting.start_soon(report, ctx)
        async with trio.open_nursery() as nursery:
            for _ in range(questions):
                nursery.start_soon(ctx.sample, "What?")
        reporting.cancel_scope.cancel()


async def report(ctx: Context) -> None:
    """Report progress without a pause."""
    for step in itertools.count():
        await ctx.progress(step, message="Still at it. " * 20)


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
