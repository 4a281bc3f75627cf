"""An HTTP server for tests that answers exactly what the test tells it to, without sockets and in virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2
import trio
from scripted import OFFERS, Json, Pending, Start, client_over, discovered, initialized, said
from trio.testing import wait_all_tasks_blocked
from wire_terms import MODERN

from trio_mcp.client import Client
from trio_mcp_transports.background import open_background
from trio_mcp_transports.http.client.channel import HttpChannel
from trio_mcp_transports.httpx import POST_TIMEOUT, ClientLimits

BOUND = 1000
"""Virtual seconds that any wait may take."""

URL = "http://scripted.test/mcp"
EVENTS = {"content-type": "text/event-stream"}


def event(message: Json | None = None, *, id: str | None = None, retry: int | None = None) -> bytes:
    """An event; without a message it is empty."""
    lines = [] if id is None else [f"id: {id}"]
    lines += [] if retry is None else [f"retry: {retry}"]
    lines += ["data: " + ("" if message is None else json.dumps({"jsonrpc": "2.0", **message}))]
    return ("\n".join(lines) + "\n\n").encode()


class Exchange:
    """One request of the client, to be answered once."""

    def __init__(self, request: httpx2.Request) -> None:
        self.verb = request.method
        self.url = str(request.url)
        self.headers = request.headers
        self.message: Json = json.loads(request.content) if request.content else {}
        self.at = trio.current_time()
        self.left = trio.Event()
        """The client has given this request up, or read its answer to the end."""
        self._answered = trio.Event()
        self._response: httpx2.Response | None = None
        self._failure: httpx2.HTTPError | None = None
        self._sends: trio.MemorySendChannel[bytes | Exception] | None = None

    async def response(self) -> httpx2.Response:
        try:
            await self._answered.wait()
        except trio.Cancelled:
            self.left.set()
            raise
        if self._failure is not None:
            raise self._failure
        assert self._response is not None
        return self._response

    def fail(self, error: httpx2.HTTPError) -> None:
        """Answer with what a connection fails with."""
        self._failure = error
        self._answered.set()

    def answer(self, status: int = 200, body: Json | bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Answer in one piece."""
        raw = body if isinstance(body, bytes) else json.dumps({"jsonrpc": "2.0", **body}).encode()
        kind = {} if isinstance(body, bytes) else {"content-type": "application/json"}
        self._response = httpx2.Response(status, headers={**kind, **(headers or {})}, content=raw)
        self._answered.set()

    def result(self, result: Json, headers: Mapping[str, str] | None = None) -> None:
        self.answer(200, {"id": self.message["id"], "result": result}, headers)

    def refuse(self, status: int, code: int, message: str = "no") -> None:
        self.answer(status, {"id": self.message["id"], "error": {"code": code, "message": message}})

    def stream(self, headers: Mapping[str, str] | None = None, status: int = 200) -> None:
        """Begin a stream of events, or the body of another answer."""
        self._sends, receives = trio.open_memory_channel[bytes | Exception](100)

        async def body() -> AsyncIterator[bytes]:
            try:
                async with receives:
                    async for piece in receives:
                        if isinstance(piece, Exception):
                            raise piece
                        yield piece
            finally:
                self.left.set()

        self._response = httpx2.Response(status, headers={**EVENTS, **(headers or {})}, content=body())
        self._answered.set()

    def say(self, piece: bytes) -> None:
        assert self._sends is not None
        self._sends.send_nowait(piece)

    def pieces(self, *pieces: bytes) -> None:
        """Answer with a stream of these pieces that ends without more."""
        self.stream()
        for piece in pieces:
            self.say(piece)
        self.end()

    def end(self) -> None:
        """End the stream as a server does that has no more to say for now."""
        assert self._sends is not None
        self._sends.close()

    def break_off(self) -> None:
        """End the stream as a lost connection does."""
        assert self._sends is not None
        self._sends.send_nowait(httpx2.ReadError("connection reset"))
        self._sends.close()


class HttpWire:
    """The server's end."""

    def __init__(self) -> None:
        self._arrive, self._arrived = trio.open_memory_channel[Exchange](100)
        self._others: list[Exchange] = []

    async def handle(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        exchange = Exchange(request)
        self._arrive.send_nowait(exchange)
        return await exchange.response()

    async def next(self, verb: str, method: str | None = None) -> Exchange:
        """The next request of this kind: requests travel side by side, so others may have come before it."""
        for exchange in self._others:
            if (exchange.verb, exchange.message.get("method")) == (verb, method):
                self._others.remove(exchange)
                return exchange
        with trio.fail_after(BOUND):
            while True:
                exchange = await self._arrived.receive()
                if (exchange.verb, exchange.message.get("method")) == (verb, method):
                    return exchange
                self._others.append(exchange)

    @property
    def unseen(self) -> int:
        """Requests that came and were not looked at."""
        return self._arrived.statistics().current_buffer_used

    def nothing(self) -> None:
        """No request is unanswered that was not asked for."""
        with suppress(trio.WouldBlock):
            self._others.append(self._arrived.receive_nowait())
        assert [(exchange.verb, exchange.message) for exchange in self._others] == []

    async def post(self, method: str = "tools/call") -> Exchange:
        return await self.next("POST", method)

    async def reply(self, method: str, result: Json) -> Exchange:
        """Answer the next request of this method with this result."""
        exchange = await self.post(method)
        exchange.result(result)
        return exchange

    async def finish(self, call: Pending, text: str = "booked") -> Exchange:
        """Answer the next call of a tool with this text, which is the result of the call."""
        exchange = await self.reply("tools/call", said(text))
        assert (await call.result()).text == text
        return exchange

    async def handshake(self, session: str | None = "S1", capabilities: Json = OFFERS) -> None:
        """Answer what opens a session."""
        request = await self.post("initialize")
        assert "mcp-session-id" not in request.headers
        request.result(initialized(capabilities=capabilities), {} if session is None else {"mcp-session-id": session})
        notification = await self.post("notifications/initialized")
        assert notification.headers.get("mcp-session-id") == session
        notification.answer(202)
        await wait_all_tasks_blocked()

    async def with_stream(self, session: str = "S1") -> Exchange:
        """The same; returns the GET for what belongs to no request."""
        await self.handshake(session)
        return await self.next("GET")

    async def without_stream(self, session: str = "S1", capabilities: Json = OFFERS) -> None:
        """The same as a server that has no stream for what belongs to no request."""
        await self.handshake(session, capabilities)
        (await self.next("GET")).answer(405)

    async def lose(self, session: str = "S2") -> None:
        """Answer the next call with 404, and open the session that the client asks for instead."""
        (await self.post()).answer(404)
        await self.without_stream(session)

    async def modern(self) -> None:
        """Answer as a modern server that is asked what it is."""
        await self.reply("server/discover", discovered())
        await wait_all_tasks_blocked()  # the client is open

    async def farewell(self) -> None:
        """Answer every request that comes while the client closes."""
        async for exchange in self._arrived:
            exchange.answer(200)


@asynccontextmanager
async def http_channel(transport: httpx2.AsyncBaseTransport, url: str = URL) -> AsyncIterator[HttpChannel]:
    """A channel over HTTP without sockets: its requests are answered by this transport of httpx2."""
    async with httpx2.AsyncClient(transport=transport) as http, open_background() as nursery:
        channel = HttpChannel(url, http, nursery, ClientLimits(post_timeout=POST_TIMEOUT, message=1_000_000))
        try:
            yield channel
        finally:
            await channel.aclose()


@asynccontextmanager
async def http_conversation(*, mode: str = "legacy", **options: Any) -> AsyncIterator[tuple[Client, HttpWire, Start]]:
    """A client that is about to open over HTTP, the server it meets, and a way to run its methods in tasks."""
    wire = HttpWire()
    async with client_over(http_channel(httpx2.MockTransport(wire.handle)), mode=mode, **options) as (client, start):
        opened = start(client.open)
        yield client, wire, start
        await opened.result()
        start(wire.farewell)


@asynccontextmanager
async def in_session(**options: Any) -> AsyncIterator[tuple[Client, HttpWire, Start]]:
    """The same in a session that is open, with a server that has no stream for what belongs to no request."""
    async with http_conversation(**options) as (client, wire, start):
        await wire.without_stream()
        yield client, wire, start


@asynccontextmanager
async def modern_http(**options: Any) -> AsyncIterator[tuple[Client, HttpWire, Start]]:
    """The same with a modern server."""
    async with http_conversation(mode=MODERN, **options) as (client, wire, start):
        await wire.modern()
        yield client, wire, start


@asynccontextmanager
async def calling(**options: Any) -> AsyncIterator[tuple[HttpWire, Pending, Exchange]]:
    """The server's end of a session in which a tool is being called, the call, and the request that makes it."""
    async with in_session() as (client, wire, start):
        call = start(client.call_tool, "slow", **options)
        yield wire, call, await wire.post()
