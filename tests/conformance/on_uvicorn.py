"""Serve the everything server on uvicorn, and write its URL as the server itself does."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

from everything_server import server

from trio_mcp_transports.http import asgi_app

if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(
            f"{server.identity.name} serves MCP at http://127.0.0.1:{listening.getsockname()[1]}/mcp",
            file=sys.stderr,
            flush=True,
        )
        config = uvicorn.Config(asgi_app(server), log_level="warning", loop="asyncio", http="h11")
        uvicorn.Server(config).run(sockets=[listening])
