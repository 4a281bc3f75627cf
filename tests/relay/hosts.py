"""Hosts over HTTP with a proxy between them and a server that tests write line by line. Every wait is bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing
from asgi_peer import JSON_HEADERS, AsgiPeer, Reply, initialize, modern_call, modern_request, served
from ends import LineEnd
from relaying import ALL_SECONDS, DISCOVERED, SECONDS, Json, Line, Model, initialized
from wire_terms import NEWEST_LEGACY

from trio_mcp.http import Authenticate
from trio_mcp.relay import Backfill, RelayServer
from trio_mcp.session import ServiceOptions
from trio_mcp_transports.http import asgi_app


class Hosts:
    """Hosts of one proxy, and the server behind it, to which each connection is a separate wire."""

    def __init__(self, peer: AsgiPeer, servers: trio.MemoryReceiveChannel[Line]) -> None:
        self.peer = peer
        self._servers = servers

    async def connection(self) -> Line:
        """Return the next connection that the proxy opens to the server."""
        with trio.fail_after(SECONDS):
            return await self._servers.receive()

    async def open_session(self, who: dict[str, str] | None = None) -> tuple[dict[str, str], Line]:
        """Open a legacy session with these credentials; return the headers of its requests, and its connection."""
        own = {**JSON_HEADERS, **(who or {})}
        opening = self.peer.start(initialize({}), own)
        server = await self.connection()
        got = await server.receive()
        await server.send({"jsonrpc": "2.0", "id": got["id"], "result": initialized()})
        reply = await opening.end()
        assert reply.json["result"] == initialized()
        headers = {"mcp-session-id": reply.headers["mcp-session-id"], "mcp-protocol-version": NEWEST_LEGACY}
        return {**own, **headers}, server

    async def legacy_server(self) -> Line:
        """Return the next connection, to a server which turns out to be a legacy one, and has a session."""
        server = await self.connection()
        for method, answer in (
            ("server/discover", {"error": {"code": -32601, "message": "what?"}}),
            ("initialize", {"result": initialized()}),
        ):
            got = await server.receive()
            assert got["method"] == method
            await server.send({"jsonrpc": "2.0", "id": got["id"], **answer})
        assert (await server.receive())["method"] == "notifications/initialized"
        return server

    async def call(self, server: Line, id: object = 1, **options: Any) -> tuple[Reply, Json]:
        """Let a modern host call a tool; return the reply, and what the server was sent."""
        reply = self.peer.start(*modern_call("look", id=id, **options))
        return reply, await server.receive()

    async def discovered(self, who: dict[str, str] | None = None) -> Line:
        """Let the proxy find out that the server is a modern one; return the connection."""
        body, headers = modern_request("server/discover", {}, id="d")
        discovery = self.peer.start(body, {**headers, **(who or {})})
        server = await self.connection()
        for _ in range(2):
            got = await server.receive()
            await server.send({"jsonrpc": "2.0", "id": got["id"], "result": DISCOVERED})
        assert (await discovery.end()).json["id"] == "d"
        return server


@asynccontextmanager
async def proxied(
    model: Model | None = None,
    options: ServiceOptions | None = None,
    authenticate: Authenticate | None = None,
    **relay_options: int,
) -> AsyncIterator[Hosts]:
    opened, servers = trio.open_memory_channel[Line](10)

    @asynccontextmanager
    async def connect() -> AsyncIterator[LineEnd]:
        ours, theirs = trio.testing.memory_stream_pair()
        await opened.send(Line(ours))
        async with LineEnd(theirs) as channel:
            yield channel

    relay = RelayServer(connect, Backfill(model or Model()), options, **relay_options)
    app = asgi_app(relay, sse_path="/sse", authenticate=authenticate)
    with trio.fail_after(ALL_SECONDS):
        async with served(app) as peer:
            yield Hosts(peer, servers)


def progress(token: object) -> Json:
    return {
        "jsonrpc": "2.0",
        "method": "notifications/progress",
        "params": {"progressToken": token, "progress": 1, "x": 1},
    }
