"""A FastMCP server whose tools are tasks, over stdio or HTTP; it runs in an environment of its own.

`fastmcp_tasks_server.py stdio`, or `... http PORT`.
"""

import asyncio
import sys

from fastmcp import FastMCP
from fastmcp_tasks import TasksExtension

server = FastMCP("fastmcp")
server.add_extension(TasksExtension())


@server.tool(task=True)
async def double(n: int) -> int:
    await asyncio.sleep(0.05)
    return 2 * n


@server.tool(task=True)
async def broken() -> str:
    raise ValueError("no luck")


@server.tool(task=True)
async def endless() -> str:
    await asyncio.sleep(1000)
    return ""


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("http", port=int(sys.argv[2]), show_banner=False)
    else:
        server.run(show_banner=False)
