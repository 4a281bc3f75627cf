"""What the tests of WebSockets share: a server on a loopback port, and a client that speaks bytes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import urlsplit

import serving
import trio
from hypercorn_peer import Client, frame
from peer import ClientPeer, Json, encoded

from trio_mcp import Server

LIMIT = 60.0
SOON = 10.0

TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@asynccontextmanager
async def served(server: Server, **options: Any) -> AsyncIterator[str]:
    """The ws:// URL at which a server is served for the length of the block, which is bounded."""
    with trio.fail_after(LIMIT):
        async with serving.served(server, "websocket", **options) as url:
            yield url


class RawPeer(ClientPeer):
    """A client of a served URL that writes and reads frames as bytes. A mask of zeros is a mask."""

    def __init__(self, stream: trio.abc.Stream, authority: str, path: str) -> None:
        super().__init__()
        self.client = Client(stream)
        self.authority = authority
        self.path = path

    # the handshake

    async def upgrade(self, headers: Mapping[str, str | None] | None = None) -> tuple[int, Mapping[str, str], bytes]:
        """Ask for a WebSocket, with these headers on top or (None) without them; the status, the headers and the body."""
        sent: dict[str, str | None] = {
            "host": self.authority,
            "connection": "Upgrade",
            "upgrade": "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
            "sec-websocket-protocol": "mcp",
            **(headers or {}),
        }
        lines = [f"{name}: {value}" for name, value in sent.items() if value is not None]
        await self.client.send("\r\n".join([f"GET {self.path} HTTP/1.1", *lines, "", ""]).encode("latin-1"))
        status, received = await self.client.head()
        body = await self.client.exactly(int(received.get("content-length", 0)))
        return status, received, body

    async def open(self, headers: Mapping[str, str | None] | None = None) -> Self:
        status, received, body = await self.upgrade(headers)
        assert (status, received["sec-websocket-protocol"]) == (101, "mcp"), body
        return self

    # messages

    async def send(self, message: Json) -> None:
        await self.client.send(frame(TEXT, encoded(message)))

    async def receive(self) -> Json:
        """Return the next message, which is in one text frame; pings are answered on the way."""
        while True:
            first, payload = await self.client.frame()
            if first == 0x80 | PING:
                await self.client.send(frame(PONG, payload))
                continue
            assert first == 0x80 | TEXT, (hex(first), payload)
            return json.loads(payload)

    async def close(self) -> None:
        await self.client.send(frame(CLOSE, (1000).to_bytes(2, "big")))

    async def closed(self) -> tuple[int, str]:
        """The code and the reason of the close frame, which is the next one."""
        first, payload = await self.client.frame()
        assert first == 0x80 | CLOSE, (hex(first), payload)
        return int.from_bytes(payload[:2], "big"), payload[2:].decode()


@asynccontextmanager
async def raw(url: str, *, connected: bool = True) -> AsyncIterator[RawPeer]:
    """A separate connection; with `connected`, it is a WebSocket already."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    with trio.fail_after(SOON):
        stream = await trio.open_tcp_stream(parts.hostname, parts.port)
    async with stream:
        peer = RawPeer(stream, parts.netloc, parts.path)
        yield await peer.open() if connected else peer
