"""An asyncio host in a test: the application is called as uvicorn calls it, with no socket in between."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio
from asgi_peer import JSON_HEADERS, modern_call
from peer import Json

from trio_mcp import Context, Server, ServiceOptions
from trio_mcp_transports.http import McpApp, McpApps

BOUND = 20.0


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(BOUND):
            await main()

    asyncio.run(bounded())


def on_asyncio(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Let `run` run a test."""

    @functools.wraps(test)
    def bounded(*args: object, **options: object) -> None:
        run(lambda: test(*args, **options))

    return bounded


class Peer:
    """One request of a client, as an asyncio host passes it on."""

    def __init__(self, scope: Mapping[str, object], *sent: Mapping[str, object]) -> None:
        self.scope = dict(scope)
        self.sent = sent
        self.answered = list[dict[str, Any]]()
        self._incoming = asyncio.Queue[Mapping[str, object]]()
        for message in sent:
            self._incoming.put_nowait(message)

    def drop_last(self) -> None:
        """Drop the last piece of the body."""
        whole = self._incoming
        self._incoming = asyncio.Queue()
        while whole.qsize() > 1:
            self._incoming.put_nowait(whole.get_nowait())

    def leave(self) -> None:
        self._incoming.put_nowait({"type": "http.disconnect"})

    async def serve(self, app: McpApp | McpApps) -> None:
        await app(self.scope, self._incoming.get, self._send)

    async def request(self, app: McpApp | McpApps) -> tuple[int, bytes]:
        await self.serve(app)
        head, *parts = self.answered
        return head["status"], b"".join(part.get("body", b"") for part in parts)

    async def _send(self, message: dict[str, Any]) -> None:
        await asyncio.sleep(0)
        self.answered.append(message)


def get(path: str) -> Peer:
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
    return Peer(scope, {"type": "http.request", "body": b""})


def post(message: Json, headers: Mapping[str, str], path: str = "/mcp", pieces: int = 1) -> Peer:
    """Return a request whose body comes in so many pieces."""
    lines = [(key.encode(), value.encode()) for key, value in {**JSON_HEADERS, **headers}.items()]
    scope = {"type": "http", "method": "POST", "path": path, "headers": lines, "query_string": b""}
    body = json.dumps(message).encode()
    size = -(-len(body) // pieces)
    return Peer(
        scope,
        *(
            {"type": "http.request", "body": body[at : at + size], "more_body": at + size < len(body)}
            for at in range(0, len(body), size)
        ),
    )


def call(name: str, path: str = "/mcp", pieces: int = 1) -> Peer:
    return post(*modern_call(name), path, pieces)


async def until(condition: Callable[[], object]) -> None:
    """Wait until something is so that no event of asyncio tells."""
    while not condition():  # noqa: ASYNC110  see above
        await asyncio.sleep(0.001)


WEBSOCKET = {
    "type": "websocket",
    "path": "/mcp",
    "query_string": b"",
    "headers": [(b"host", b"localhost"), (b"sec-websocket-protocol", b"mcp")],
    "subprotocols": ["mcp"],
}


async def known(_headers: Mapping[str, str]) -> str:
    """The hook of a server that knows every caller."""
    return "ada"


def noting(events: list[str], *, on_asyncio: bool = False) -> Server:
    """A server whose tools note when they begin and end: `wait` waits, and `talk` reports something all the time."""
    server = Server("shop")

    @server.tool(asyncio=on_asyncio)
    async def wait() -> None:
        events.append("began")
        try:
            await (asyncio if on_asyncio else trio).sleep(60)
        finally:
            events.append("ended")

    @server.tool
    async def talk(ctx: Context) -> None:
        try:
            for done in itertools.count():
                await ctx.progress(done)
        finally:
            events.append("ended")

    return server


def talking() -> Peer:
    """A call of `talk`, with a progress token."""
    return post(*modern_call("talk", meta={"progressToken": 1}))


def shop(options: ServiceOptions | None = None) -> Server:
    server = Server("shop", options=options)

    @server.tool
    async def count() -> int:
        return 3

    return server
