"""A server whose tools are tasks."""

from __future__ import annotations

import trio

from trio_mcp import Context, Server

server = Server("tasker", version="1")


@server.tool(task=True)
async def report(year: int, ctx: Context) -> str:
    """Asks its user once."""
    await ctx.status("reading")
    answer = await ctx.elicit("how many pages?", int)
    await ctx.status("writing")
    return f"{year}: {answer.content if answer.action == 'accept' else 'none'}"


@server.tool(task=True)
async def endless(ctx: Context) -> None:
    """Never ends."""
    await ctx.status("waiting")
    await trio.sleep_forever()


@server.tool
async def plain() -> str:
    """Never runs as a task."""
    return "done"


if __name__ == "__main__":
    server.run("stdio")
