"""An ASGI server in a test: the application is called as hypercorn calls it, with no socket in between."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

import trio
from peer import Json, hello, modern_meta
from wire_terms import NEWEST_LEGACY as LEGACY, headers_of

from trio_mcp_transports.http import McpApp, McpApps

JSON_HEADERS = {
    "host": "localhost:8000",
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
}
LOCAL = {"host": "localhost"}
ALICE = {"authorization": "Bearer alice"}
BOB = {"authorization": "Bearer bob"}


async def by_token(headers: Mapping[str, str]) -> str | None:
    """The hook of a server where Alice and Bob have tokens."""
    return {f"Bearer {name}": name for name in ("alice", "bob")}.get(headers.get("authorization", ""))


@dataclass
class Reply:
    """What the application has sent so far for one request."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    ended: trio.Event = field(default_factory=trio.Event)
    gone: trio.Event = field(default_factory=trio.Event)
    stuck: trio.Event | None = None
    """While there is one that is not set, every write waits for it, as to a client that reads no more."""
    lingers: trio.Event | None = None
    """While there is one that is not set, a cancelled wait for the client takes its time to end."""
    broken: bool = False
    """Every write fails, as to a client whose connection was reset."""
    _head: Mapping[str, Any] = field(default_factory=dict)
    _said: trio.Condition = field(default_factory=trio.Condition)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The messages; priming events carry none."""
        return [
            json.loads(line[6:])
            for line in self.body.decode().split("\n")
            if line.startswith("data: ") and line != "data: "
        ]

    @property
    def ids(self) -> list[str]:
        """The event ids, that of a priming event too."""
        return [line[4:] for line in self.body.decode().split("\n") if line.startswith("id: ")]

    @property
    def messages(self) -> list[Any]:
        """The messages that it has brought so far, in a stream or as one."""
        if self.headers.get("content-type") == "text/event-stream":
            return self.events
        return [self.json] if self.ended.is_set() and self.headers.get("content-type") == "application/json" else []

    @property
    def last(self) -> Any:
        return self.events[-1] if self.headers.get("content-type") == "text/event-stream" else self.json

    async def send(self, message: Mapping[str, Any]) -> None:
        if self.stuck is not None:
            with trio.CancelScope(shield=True):  # a real server does not give up a write that it has begun
                await self.stuck.wait()
        if self.broken:
            raise OSError("the client has left")
        async with self._said:
            if message["type"] == "http.response.start":
                self._head = message  # which goes out with the first of the body, as hypercorn does it
            else:
                self.status = self._head["status"]
                self.headers = {name.decode(): value.decode() for name, value in self._head["headers"]}
                self.body += message.get("body", b"")
                if not message.get("more_body", False):
                    self.ended.set()
            self._said.notify_all()

    async def until(self, text: str, *, seconds: float = 5) -> None:
        """Wait until this text has been sent."""
        with trio.fail_after(seconds):
            async with self._said:
                while text.encode() not in self.body:
                    await self._said.wait()

    async def end(self, *, seconds: float = 5) -> Reply:
        with trio.fail_after(seconds):
            await self.ended.wait()
        return self


class AsgiPeer:
    """A client of one application."""

    def __init__(self, app: McpApp | McpApps, nursery: trio.Nursery) -> None:
        self.app = app
        self.nursery = nursery

    def start(
        self,
        body: object,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
        query: str = "",
        root: str = "",
        sends_body: bool = True,
    ) -> Reply:
        """Send a request; its reply grows while the application answers. `reply.gone.set()` is the client's disconnect."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = dict(JSON_HEADERS) if headers is None else dict(headers)
        lines = [(k.encode("latin-1"), v.encode("latin-1")) for k, v in named.items()]
        more = {"query_string": query.encode("latin-1"), "root_path": root}
        return self.start_raw(raw if sends_body else None, lines, method, path, **more)

    def start_raw(
        self, raw: bytes | None, headers: list[tuple[bytes, bytes]], method: str, path: str, **more: object
    ) -> Reply:
        reply = Reply()
        unread = [] if raw is None else [raw[: len(raw) // 2], raw[len(raw) // 2 :]]

        async def receive() -> dict[str, Any]:
            await trio.lowlevel.checkpoint()
            if unread:
                chunk = unread.pop(0)
                return {"type": "http.request", "body": chunk, "more_body": bool(unread)}
            try:
                await reply.gone.wait()
            finally:
                if reply.lingers is not None:
                    with trio.CancelScope(shield=True):
                        await reply.lingers.wait()
            return {"type": "http.disconnect"}

        scope = {"type": "http", "method": method, "path": path, "headers": headers, **more}
        self.nursery.start_soon(self._run, scope, receive, reply)
        return reply

    async def _run(self, scope: Any, receive: Any, reply: Reply) -> None:
        with suppress(OSError) if reply.broken else nullcontext():
            await self.app(scope, receive, reply.send)

    async def post(self, body: object, headers: Mapping[str, str] | None = None, **options: str) -> Reply:
        return await self.start(body, headers, **options).end()

    async def get(self, path: str, headers: Mapping[str, str] = LOCAL, **options: str) -> Reply:
        return await self.start(b"", headers, method="GET", path=path, **options).end()

    async def open_stream(self, headers: Mapping[str, str] | None = None) -> tuple[Reply, dict[str, str]]:
        """Open a stream of HTTP+SSE; return it, and the path and the query to which its messages are posted."""
        named = {**LOCAL, "accept": "text/event-stream", **(headers or {})}
        stream = self.start(b"", named, method="GET", path="/sse")
        await stream.until("session_id=")
        path, _, query = stream.body.decode().partition("data: ")[2].split()[0].partition("?")
        return stream, {"path": path, "query": query}

    async def open_session(
        self,
        capabilities: Json | None = None,
        version: str = LEGACY,
        who: Mapping[str, str] | None = None,
        path: str = "/mcp",
    ) -> dict[str, str]:
        """Make a handshake, with the credentials `who`; returns the headers that later requests carry."""
        headers = {**JSON_HEADERS, **(who or {})}
        reply = await self.post(initialize(capabilities or {"elicitation": {}}, version), headers, path=path)
        assert reply.status == 200, reply.body
        headers |= {"mcp-session-id": reply.headers["mcp-session-id"], "mcp-protocol-version": version}
        notification = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, headers, path=path)
        assert notification.status == 202
        return headers


class AsgiSocket:
    """A WebSocket of a client: the application receives what the test puts, and what it sends is kept or given to `take`.

    Attributes:
        sent: what the application has sent, from its handshake to its close.
    """

    def __init__(
        self,
        app: McpApp | McpApps,
        headers: Mapping[str, str] | None = None,
        take: Callable[[Any], Awaitable[None]] | None = None,
        **scope: Any,
    ) -> None:
        self.app = app
        self._take = take or self._keep
        self.sent: list[dict[str, Any]] = []
        self.puts, self._gets = trio.open_memory_channel[dict[str, Any]](1000)
        self.puts.send_nowait({"type": "websocket.connect"})
        named = {**LOCAL, "sec-websocket-version": "13", **(headers or {})}
        lines = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in named.items()]
        self._scope = {"type": "websocket", "path": "/mcp", "headers": lines, "subprotocols": ["mcp"], **scope}

    async def run(self) -> None:
        await self.app(self._scope, self._gets.receive, self._take)

    async def _keep(self, message: dict[str, Any]) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(message)

    @property
    def messages(self) -> list[Any]:
        """The messages among what was sent."""
        return [json.loads(each["text"]) for each in self.sent if each["type"] == "websocket.send"]

    def put(self, data: str | bytes) -> None:
        self.puts.send_nowait({"type": "websocket.receive", "text" if isinstance(data, str) else "bytes": data})

    def leave(self, code: int = 1000) -> None:
        self.puts.send_nowait({"type": "websocket.disconnect", "code": code})


REFUSABLE: Json = {"websocket.http.response": {}}
"""The extensions of an ASGI server that lets an application refuse a WebSocket with a response."""


def initialize(capabilities: Json, version: str = LEGACY) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello(version, capabilities)}


def legacy_call(tool: str, arguments: object = None, *, id: object = 2, **more: object) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": id,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments or {}, **more},
    }


def modern_request(
    method: str,
    params: Mapping[str, Any],
    *,
    id: object = 2,
    meta: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """A modern request and its headers, with these on top."""
    said = modern_meta({"elicitation": {}}, meta)
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": id, "method": method, "params": {**params, "_meta": said}}
    return body, {**JSON_HEADERS, **headers_of(method, body["params"]), **(headers or {})}


def modern_call(
    tool: str,
    arguments: object = None,
    *,
    id: object = 2,
    meta: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> tuple[dict[str, Any], dict[str, str]]:
    params = {"name": tool, "arguments": arguments or {}, **more}
    return modern_request("tools/call", params, id=id, meta=meta, headers=headers)


@asynccontextmanager
async def unstarted(app: McpApp | McpApps) -> AsyncIterator[AsgiPeer]:
    """A client of an application that gets no lifespan events."""
    async with trio.open_nursery() as nursery:
        yield AsgiPeer(app, nursery)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def served(app: McpApp | McpApps) -> AsyncIterator[AsgiPeer]:
    """Run an application's lifespan round the block."""
    to_app, from_test = trio.open_memory_channel[dict[str, Any]](1)
    to_test, from_app = trio.open_memory_channel[dict[str, Any]](1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(app, {"type": "lifespan"}, from_test.receive, to_test.send)
        await to_app.send({"type": "lifespan.startup"})
        with trio.fail_after(5):
            started = await from_app.receive()
        assert started["type"] == "lifespan.startup.complete", started
        async with trio.open_nursery() as requests:
            yield AsgiPeer(app, requests)
            requests.cancel_scope.cancel()
        await to_app.send({"type": "lifespan.shutdown"})
        with trio.fail_after(5):
            assert (await from_app.receive())["type"] == "lifespan.shutdown.complete"
