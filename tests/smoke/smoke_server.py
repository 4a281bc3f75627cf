"""A server with one tool of each kind, for one conversation over a real wire: `smoke_server.py` serves it on stdio."""

from __future__ import annotations

import trio

from trio_mcp import Context, Server

server = Server("smoke", version="1.0")

cancelled: list[str] = []


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def count(n: int, ctx: Context) -> str:
    """Report progress n times."""
    for done in range(1, n + 1):
        await ctx.progress(done, n)
    return "counted"


@server.tool
async def greet(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("Who is there?", str)
    return f"Hello {answer.content}" if answer.action == "accept" else answer.action


@server.tool
async def wait(ctx: Context) -> str:
    """Wait to be cancelled."""
    try:
        await ctx.progress(1)
        await trio.sleep_forever()
    finally:
        cancelled.append("wait")


@server.tool
async def waits() -> list[str]:
    """What was cancelled so far."""
    return cancelled


if __name__ == "__main__":
    server.run("stdio")
