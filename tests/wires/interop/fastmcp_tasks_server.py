"""A FastMCP server whose tools are tasks, over stdio or HTTP; it runs in a separate environment.

`fastmcp_tasks_server.py stdio`, or `... http`, which announces its URL.
"""

import asyncio
import socket
import sys

import uvicorn
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
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
            print(f"fastmcp serves MCP at http://127.0.0.1:{port}/mcp, for tests", file=sys.stderr, flush=True)
            uvicorn.Server(uvicorn.Config(server.http_app())).run(sockets=[listening])
    else:
        server.run(show_banner=False)
