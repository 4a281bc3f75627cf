"""A proxy between a host and a server that tests write line by line. Every wait is bounded."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio
import trio.testing
from ends import LineEnd
from wire_terms import CLIENT_CAPABILITIES, MODERN, NEWEST_LEGACY, PROTOCOL_VERSION

from trio_mcp.relay import Backfill, RelayServer
from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent

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


def key_of(message: Json) -> str:
    return f"{message['method']} {json.dumps(message.get('params', {}), sort_keys=True)}"


class Ids:
    """The ids of requests at the side that they pass to: a proxy numbers them anew, and tests name them by those of their sender.

    Those of the requests that the proxy sends itself are "proxy-" and the number. One that is sent again keeps its name.
    """

    def __init__(self) -> None:
        self._sent: dict[str, deque[object]] = {}
        """The ids of requests that have not arrived, by method and params."""
        self._arrived: dict[str, object] = {}
        """The last of those that have, as they have arrived."""
        self._own: dict[object, object] = {}
        self._theirs: dict[object, object] = {}

    def note(self, message: Json) -> None:
        """Note a request as its sender sends it."""
        if "method" in message and "id" in message:
            self._sent.setdefault(key_of(message), deque()).append(message["id"])

    def named(self, message: Json) -> Json:
        """Return a message that has passed, with the ids of the sender."""
        if "method" not in message:
            return message
        if "id" in message:
            name = self._name_of(message)
            self._own[message["id"]], self._theirs[repr(name)] = name, message["id"]
            return {**message, "id": name}
        params = message.get("params", {})
        if "requestId" in params:
            return {**message, "params": {**params, "requestId": self._own.get(params["requestId"])}}
        return message

    def _name_of(self, message: Json) -> object:
        # One that the proxy has changed is the oldest of its method.
        keys = (key for key in [key_of(message), *self._sent] if key in self._sent)
        key = next((key for key in keys if key.partition(" ")[0] == message["method"]), None)
        if key is None:
            return self._arrived.get(key_of(message), f"proxy-{message['id']}")
        name = self._arrived[key_of(message)] = self._sent[key].popleft()
        if not self._sent[key]:
            del self._sent[key]
        return name

    def at_proxy(self, name: object) -> object:
        """Return the id that a request has at the proxy."""
        return self._theirs[repr(name)]

    def answered(self, message: Json) -> Json:
        """Return an answer to such a message, with the id that the proxy knows."""
        if "method" in message or "id" not in message:
            return message
        return {**message, "id": self._theirs.get(repr(message["id"]), message["id"])}


def connect_ids(host: Line, server: Line) -> None:
    """Let both ends know a request by the id that its sender has given it."""
    host.sent = server.received = Ids()
    server.sent = host.received = Ids()


class Line:
    """One end of a wire of lines, as a test holds it.

    Attributes:
        sent, received: the ids of the requests that this end sends, and of those that it gets, if the other end has them, too.
    """

    def __init__(self, stream: trio.StapledStream[Any, Any]) -> None:
        self._stream = stream
        self._rest = b""
        self.sent: Ids | None = None
        self.received: Ids | None = None

    async def send(self, message: Json | list[Json] | bytes) -> None:
        for each in message if isinstance(message, list) else [message]:
            if self.sent is not None and isinstance(each, dict):
                self.sent.note(each)
        if self.received is not None and isinstance(message, dict):
            message = self.received.answered(message)
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        await self._stream.send_all(line + b"\n")

    async def send_together(self, *messages: Json) -> None:
        """Send messages in one write."""
        assert self.sent is not None
        assert self.received is not None
        for each in messages:
            self.sent.note(each)
        await self.send(b"\n".join([json.dumps(self.received.answered(each)).encode() for each in messages]))

    async def line(self) -> bytes:
        with trio.fail_after(SECONDS):
            while b"\n" not in self._rest:
                data = await self._stream.receive_some()
                assert data, f"the proxy has left; the rest is {self._rest!r}"
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    async def receive(self) -> Any:
        message = json.loads(await self.line())
        return message if self.received is None or not isinstance(message, dict) else self.received.named(message)

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

    async def fails(self, request_id: object, code: int = -32603) -> str:
        """The next message is an error of this request; return what it says."""
        message = await self.receive()
        assert (message["id"], message["error"]["code"]) == (request_id, code)
        return str(message["error"]["message"])

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

    async def passed(self, message: Json) -> Json:
        """Let the host send a message; return what the server gets."""
        await self.host.send(message)
        return dict(await self.server.receive())

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
    host_type: type[LineEnd] = LineEnd,
    **backfill: Any,
) -> AsyncIterator[Relayed]:
    """A proxy with this provider, `Model()` by default; what a side that reads nothing is sent waits in the proxy."""
    host, host_end = (trio.testing.memory_stream_pair if host_reads else trio.testing.lockstep_stream_pair)()
    pair = trio.testing.memory_stream_pair if reads else trio.testing.lockstep_stream_pair
    server, server_end = pair()

    @asynccontextmanager
    async def connect() -> AsyncIterator[LineEnd]:
        async with LineEnd(server_end) as channel:
            yield channel

    relay = RelayServer(connect, Backfill(Model() if provider is None else provider, **backfill))  # type: ignore[arg-type]
    found = Relayed(Line(host), Line(server), relay, trio.Event())
    connect_ids(found.host, found.server)

    async def serve() -> None:
        await relay.serve_channel(host_type(host_end))
        found.over.set()

    with trio.fail_after(ALL_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            yield found
            await host.aclose()
            with trio.fail_after(SECONDS):
                await found.over.wait()


@asynccontextmanager
async def legacy(provider: object = None, **options: Any) -> AsyncIterator[Relayed]:
    """The same, with a session of a host without a model."""
    async with relayed(provider, **options) as proxy:
        await proxy.open_legacy()
        yield proxy


def saying(text: str) -> CreateMessageResult:
    return CreateMessageResult(
        role="assistant", content=TextContent(text=text), model="scripted", stop_reason="endTurn"
    )
