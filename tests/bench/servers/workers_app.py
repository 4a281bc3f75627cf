"""The server of `forwarding.py`: `where` tells which worker a connection has come to."""

from __future__ import annotations

import os

from trio_mcp import Server

server = Server("bench", version="1.0")


@server.tool
async def echo(text: str) -> str:
    """Echo the text."""
    return text


@server.tool
async def where() -> str:
    """Return the number of the process."""
    return str(os.getpid())
