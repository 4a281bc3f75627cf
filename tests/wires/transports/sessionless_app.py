"""An application without sessions, which several workers of an asyncio host share a port for."""

from __future__ import annotations

import os

from trio_mcp import HttpOptions, Server
from trio_mcp_transports.http import asgi_app

server = Server("sessionless", version="1", http=HttpOptions(sessions=False))


@server.tool
async def process_id() -> int:
    """The process that answers."""
    return os.getpid()


app = asgi_app(server)
