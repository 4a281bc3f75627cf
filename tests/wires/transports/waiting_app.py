"""A server whose tool asks and waits, for a signal to show what it does."""

from __future__ import annotations

import sys

from trio_mcp import Context, Server

server = Server("waiting", version="1")


@server.tool
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Sure?", bool)).action


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("http", port=0)
    else:
        server.run()
