"""What type checkers know of the calls that serve over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from trio_mcp import Client, Server, proxy
from trio_mcp.http import HttpLimits
from trio_mcp_transports.http import McpApp, McpApps, asgi_app, serve_http


async def serving() -> None:
    server = Server("a")
    assert_type(asgi_app(server, path=None, sse_path="/sse", limits=HttpLimits()), McpApp)
    assert_type(asgi_app({"/a": server, "/b": proxy("https://example.org/mcp")}, allowed_hosts=["a"]), McpApps)
    await serve_http(server, port=0, access_log=True)
    await serve_http({"/a": server}, drain=1.0, allowed_origins=["https://example.org"])


async def fresh_headers() -> dict[str, str]:
    return {"authorization": "Bearer ..."}


def connecting() -> None:
    Client.connect(Path("server.py"))
    Client.connect("https://example.org/mcp", headers=fresh_headers)
    Client.connect("wss://example.org/mcp", headers=lambda: {"a": "b"})
