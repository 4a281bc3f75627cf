"""A proxy between a host and a server that tests write line by line. Every wait is bounded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing

from trio_mcp.protocol.revisions import CLIENT_CAPABILITIES, MODERN, NEWEST_LEGACY, PROTOCOL_VERSION
from trio_mcp.relay import Backfill, RelayServer
from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent
from trio_mcp_transports.stdio.channel import LineChannel

SECONDS = 5.0
"""How long a side is waited for."""
ALL_SECONDS = 60.0
"""How long a whole conversation may take."""
Json = dict[str, Any]

PROMPT: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": "say hello"}}], "maxTokens": 10}
TOOL: Json = {"name": "look", "inputSchema": {"type": "object"}}
HELLO: Json = {
    "role": "assistant",
    "content": {"type": "text", "text": "hello"},
    "model": "scripted",
    "stopReason": "endTurn",
}
FORM: Json = {
    "message": "Your name?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}


class Line:
    """One end of a wire of lines, as a test holds it."""

    def __init__(self, stream: trio.StapledStream[Any, Any]) -> None:
        self._stream = stream
        self._rest = b""

    async def send(self, message: Json | list[Json] | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        await self._stream.send_all(line + b"\n")

    async def line(self) -> bytes:
        with trio.fail_after(SECONDS):
            while b"\n" not in self._rest:
                data = await self._stream.receive_some()
                assert data, f"the proxy has left; the rest is {self._rest!r}"
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def receive(self) -> Any:
        return json.loads(await self.line())

    async def next(self) -> Any:
        """Return the next message, however long it takes. Raise `EOFError` at the end."""
        while b"\n" not in self._rest:
            try:
                data = await self._stream.receive_some()
            except trio.ClosedResourceError:
                data = b""
            if not data:
                raise EOFError
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    async def ends(self) -> None:
        """Wait for the end; nothing comes before it."""
        with trio.fail_after(SECONDS):
            assert self._rest + await self._stream.receive_some() == b""

    async def leave(self) -> None:
        await self._stream.aclose()

    async def hears_nothing_before(self, other: Line, probe: Json) -> None:
        """The next message of the other side is the next that comes here."""
        await other.send(probe)
        assert await self.receive() == probe


@dataclass
class Model:
    """A provider that answers hello, after its release if it is held."""

    held: bool = False
    fails: Exception | None = None
    answer: CreateMessageResult | None = None
    asked: list[CreateMessageRequestParams] = field(default_factory=list)
    began: trio.Event = field(default_factory=trio.Event)
    cancelled: trio.Event = field(default_factory=trio.Event)

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        self.asked.append(request)
        self.began.set()
        if self.held:
            try:
                await trio.sleep_forever()
            finally:
                self.cancelled.set()
        if self.fails is not None:
            raise self.fails
        return self.answer or CreateMessageResult.model_validate(HELLO)


@dataclass
class Relayed:
    """A host and a server with a proxy between them.

    Attributes:
        over: set when the proxy has ended.
    """

    host: Line
    server: Line
    relay: RelayServer
    over: trio.Event

    async def open_legacy(self, capabilities: Json | None = None, version: str = NEWEST_LEGACY) -> Json:
        """Shake hands; return what the server was sent."""
        await self.host.send(initialize(capabilities or {}, version))
        got = await self.server.receive()
        await self.server.send({"jsonrpc": "2.0", "id": got["id"], "result": initialized(version)})
        answer = await self.host.receive()
        assert answer["id"] == "open"
        assert answer["result"] == initialized(version)
        return dict(got)

    async def open_modern(self) -> None:
        """Let the proxy find out that the server is a modern one."""
        await self.host.send(modern("discover", "server/discover", {}))
        for _ in range(2):
            probe = await self.server.receive()
            assert probe["method"] == "server/discover"
            await self.server.send({"jsonrpc": "2.0", "id": probe["id"], "result": DISCOVERED})
        assert (await self.host.receive())["id"] == "discover"


DISCOVERED: Json = {
    "resultType": "complete",
    "supportedVersions": [MODERN],
    "capabilities": {"tools": {}},
    "ttlMs": 0,
    "cacheScope": "private",
}


def initialize(capabilities: Json, version: str = NEWEST_LEGACY) -> Json:
    params = {"protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "host", "version": "1"}}
    return {"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params}


def initialized(version: str = NEWEST_LEGACY) -> Json:
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {}, "x-unknown": {"a": 1}},
        "serverInfo": {"name": "server", "version": "1", "x-unknown": [1]},
    }


def modern(request_id: int | str, method: str, params: Json, capabilities: Json | None = None) -> Json:
    meta = {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: capabilities or {}, "x-unknown": 1}
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": meta}}


def call(request_id: int | str, name: str = "look", **members: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": {"name": name, **members}}


def result(request_id: int | str, **members: Any) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "result": {"content": [], **members}}


def ask(request_id: int | str, method: str = "sampling/createMessage", params: Json | None = None) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": PROMPT if params is None else params}


def cancel(request_id: int | str) -> Json:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}}


NOTE: Json = {"jsonrpc": "2.0", "method": "notifications/x-note", "params": {"a": 1}}
"""A notification that no revision has."""


@asynccontextmanager
async def relayed(
    provider: object = None,
    *,
    reads: bool = True,
    host_reads: bool = True,
    channel_type: type[LineChannel] = LineChannel,
    **backfill: Any,
) -> AsyncIterator[Relayed]:
    """A proxy with this provider, `Model()` by default; what a side that reads nothing is sent waits in the proxy."""
    host, host_end = (trio.testing.memory_stream_pair if host_reads else trio.testing.lockstep_stream_pair)()
    pair = trio.testing.memory_stream_pair if reads else trio.testing.lockstep_stream_pair
    server, server_end = pair()

    @asynccontextmanager
    async def connect() -> AsyncIterator[LineChannel]:
        async with channel_type(server_end.receive_stream, server_end.send_stream) as channel:
            yield channel

    relay = RelayServer(connect, Backfill(Model() if provider is None else provider, **backfill))  # type: ignore[arg-type]
    found = Relayed(Line(host), Line(server), relay, trio.Event())

    async def serve() -> None:
        await relay.serve_channel(LineChannel(host_end.receive_stream, host_end.send_stream))
        found.over.set()

    with trio.fail_after(ALL_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield found
            await host.aclose()
            with trio.fail_after(SECONDS):
                await found.over.wait()


Answer = Callable[[CreateMessageRequestParams], CreateMessageResult]


def saying(text: str) -> CreateMessageResult:
    return CreateMessageResult(
        role="assistant", content=TextContent(text=text), model="scripted", stop_reason="endTurn"
    )
