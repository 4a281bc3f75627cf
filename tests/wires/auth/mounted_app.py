"""A protected server at /tools in FastAPI, under uvicorn: `mounted_app.py ISSUER`. It writes its URL."""

from __future__ import annotations

import socket
import sys

import uvicorn
from fastapi import FastAPI

from trio_mcp import HttpOptions, Server
from trio_mcp.auth import ProtectedResource, jwt
from trio_mcp_transports.http import asgi_app

with socket.create_server(("127.0.0.1", 0)) as listening:
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/tools/mcp"
    resource = ProtectedResource(url, jwt(sys.argv[1]), required=["notes:read"])
    server = Server("notes", asyncio=True, http=HttpOptions(authenticate=resource))

    @server.tool
    async def read() -> str:
        """Read a note."""
        return "a note"

    app = FastAPI()

    @app.get("/")
    async def index() -> str:
        return "host"

    app.mount("/tools", asgi_app(server))
    print(url, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
