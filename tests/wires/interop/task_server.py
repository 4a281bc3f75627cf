"""Our server whose tools are tasks, for other clients: `task_server.py stdio`, or `... http`."""

from __future__ import annotations

import sys

import trio

from trio_mcp import Context, Server, ServiceOptions, TaskOptions
from trio_mcp.errors import ProtocolError

server = Server("tasker", version="1", options=ServiceOptions(tasks=TaskOptions(poll_interval=0.05)))


@server.tool(task=True)
async def report(year: int, ctx: Context) -> str:
    """Asks its user once."""
    await ctx.status("reading")
    answer = await ctx.elicit("How many pages?", int)
    await ctx.status("writing")
    return f"{year}: {answer.content if answer.action == 'accept' else 'none'}"


@server.tool(task=True)
async def quick(year: int) -> str:
    """Asks nothing."""
    return f"{year}"


@server.tool(task=True)
async def break_off() -> str:
    """Fail as a protocol error."""
    raise ProtocolError("the line is dead", code=-32603)


@server.tool(task=True)
async def endless() -> None:
    """Never ends."""
    await trio.sleep_forever()


@server.tool
async def plain() -> str:
    """Never runs as a task."""
    return "done"


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("http", port=0)
    else:
        server.run("stdio")
