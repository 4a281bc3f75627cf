"""A server whose tools ask, for tests of the client that answers, over stdio."""

from __future__ import annotations

import os

from trio_mcp import Context, Server

server = Server("asking", version="1")


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user."""
    return str(await ctx.elicit.strict("Which?", str))


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
