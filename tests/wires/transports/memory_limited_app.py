"""A server whose process may have only so much memory, with a tool that wants more: `memory_limited_app.py TRANSPORT BYTES`."""

from __future__ import annotations

import resource
import sys

import trio

from trio_mcp import Server

server = Server("limited", version="1")


@server.tool
async def allocate(size: int) -> int:
    return len(bytearray(size))


@server.tool
def allocate_in_thread(size: int) -> int:
    return len(bytearray(size))


@server.tool
async def echo(text: str) -> str:
    return text


def virtual_memory() -> int:
    """Return the address space that this process has (proc(5))."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


async def main(transport: str) -> None:
    options = {} if transport == "stdio" else {"port": 0}
    await server.serve(transport, **options)


limit = virtual_memory() + int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
trio.run(main, sys.argv[1])
