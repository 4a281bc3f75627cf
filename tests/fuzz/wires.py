"""The connections over which a server is fuzzed: in memory, as lines of bytes, as WebSocket messages and as HTTP requests."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, Protocol

import trio
import trio.testing
from asgi_peer import JSON_HEADERS, AsgiPeer, AsgiSocket, Reply, served
from checks import check
from ends import LineEnd, memory_end
from literals import literal

from trio_mcp import Server
from trio_mcp.protocol.http.headers import headers_of
from trio_mcp.session import Service, serve_channel
from trio_mcp_transports.http import asgi_app

BUFFER = 1000
MAX_LINE = 1_000_000


class Step(NamedTuple):
    """What a hostile client does next.

    Attributes:
        data: the bytes of a message.
        verb: over HTTP, the method of the request; DROP breaks the connection of the last request.
        headers: over HTTP, those that differ from what a client sends; None leaves one out.
    """

    data: bytes
    verb: str = "POST"
    headers: tuple[tuple[str, str | None], ...] = ()

    def __repr__(self) -> str:
        more = (repr(self.verb), repr(self.headers)) if self[1:] != ("POST", ()) else ()
        return f"Step({', '.join((literal(self.data), *more))})"


class Wire(Protocol):
    """One hostile client's connection."""

    async def send(self, step: Step) -> None: ...

    def heard(self) -> list[Any]:
        """Return the messages that came since the last time."""
        ...

    async def close(self) -> None: ...

    async def is_forgotten(self) -> bool:
        """Return whether the server knows nothing of this client any more."""
        return True


class MemoryWire(Wire):
    """A channel in memory."""

    def __init__(self, service: Service, nursery: trio.Nursery) -> None:
        self._sends, received = trio.open_memory_channel[bytes](BUFFER)
        sends, self._receives = trio.open_memory_channel[bytes](BUFFER)
        nursery.start_soon(serve_channel, service, memory_end(sends, received))

    async def send(self, step: Step) -> None:
        with suppress(trio.BrokenResourceError):
            self._sends.send_nowait(step.data)

    def heard(self) -> list[Any]:
        found = []
        with suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                found.append(json.loads(self._receives.receive_nowait()))
        return found

    async def close(self) -> None:
        self._sends.close()
        self._receives.close()


class LineWire(Wire):
    """Two streams of bytes, as on stdio."""

    def __init__(self, service: Service, nursery: trio.Nursery) -> None:
        self._to_server = trio.testing.MemoryReceiveStream()
        self._from_server = trio.testing.MemorySendStream()
        channel = LineEnd(trio.StapledStream(self._from_server, self._to_server), max_line=MAX_LINE)
        nursery.start_soon(serve_channel, service, channel)
        self._buffer = b""

    async def send(self, step: Step) -> None:
        with suppress(trio.ClosedResourceError):
            self._to_server.put_data(step.data + b"\n")

    def heard(self) -> list[Any]:
        with suppress(trio.WouldBlock):
            self._buffer += self._from_server.get_data_nowait()
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    async def close(self) -> None:
        self._to_server.put_eof()


class SocketWire(Wire):
    """A WebSocket, as the application meets it."""

    def __init__(self, app: Any, nursery: trio.Nursery) -> None:
        self._socket = AsgiSocket(app)
        self._seen = 0
        nursery.start_soon(self._socket.run)

    async def send(self, step: Step) -> None:
        try:
            self._socket.put(step.data.decode())
        except UnicodeDecodeError:
            self._socket.put(step.data)

    def heard(self) -> list[Any]:
        found = self._socket.messages[self._seen :]
        self._seen += len(found)
        return found

    async def close(self) -> None:
        self._socket.leave(1006)


class HttpWire(Wire):
    """Requests over HTTP. They carry the headers that a right client sends, but for what a step changes."""

    def __init__(self, peer: AsgiPeer) -> None:
        self._peer = peer
        self._replies: list[tuple[Reply, int]] = []
        self._session: dict[str, str] = {}

    async def send(self, step: Step) -> None:
        if step.verb == "DROP":
            if self._replies:
                self._replies[-1][0].gone.set()
            return
        headers = {**JSON_HEADERS, **self._session, **mirrored(step.data), **dict(step.headers)}
        lines = [(name.encode(), value.encode("latin-1")) for name, value in headers.items() if value is not None]
        data = step.data if step.verb == "POST" else b""
        self._replies.append((self._peer.start_raw(data, lines, step.verb, "/mcp"), 0))

    def heard(self) -> list[Any]:
        found = []
        for index, (reply, seen) in enumerate(self._replies):
            if not reply.status:
                continue
            check(reply.status != 500, "HTTP 500", reply.body)
            messages = reply.messages
            found += messages[seen:]
            self._replies[index] = (reply, len(messages))
            if messages and "mcp-session-id" in reply.headers:
                agreed = messages[0]["result"]["protocolVersion"]
                self._session = {"mcp-session-id": reply.headers["mcp-session-id"], "mcp-protocol-version": agreed}
        return found

    async def close(self) -> None:
        for reply, _ in self._replies:
            reply.gone.set()

    async def is_forgotten(self) -> bool:
        """Return whether the session has ended."""
        if not self._session:
            return True
        reply = await self._peer.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, {**JSON_HEADERS, **self._session})
        return reply.status == 404


def mirrored(data: bytes) -> dict[str, str]:
    """Return the headers that repeat a modern request."""
    try:
        message = json.loads(data)
        named = headers_of(message["method"], message["params"])
        return {name: value for name, value in named.items() if value.isascii() and value.isprintable()}
    except Exception:  # noqa: BLE001  a mutated message: whatever it is, its sender has no headers for it
        return {}


WIRES = ("memory", "lines", "websocket", "http")


@asynccontextmanager
async def connected(wire: str, server: Server) -> AsyncIterator[tuple[Service, Wire]]:
    """A service, and one hostile client of it. The client is gone when the block ends."""
    if wire in ("memory", "lines"):
        async with server.open_service() as service, trio.open_nursery() as nursery:
            yield service, (MemoryWire if wire == "memory" else LineWire)(service, nursery)
        return
    async with served(asgi_app(server)) as peer:
        yield peer.app.service, SocketWire(peer.app, peer.nursery) if wire == "websocket" else HttpWire(peer)
