"""A server for tests that says exactly what the test tells it to: the other end of a `Client`, in plain JSON."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import outcome
import trio
from peer import BOUND, ChannelPeer, Json

from trio_mcp.client import Client, ClientOptions, Handlers
from trio_mcp.client.cache import NO_CACHE
from trio_mcp.protocol.jsonrpc import METHOD_NOT_FOUND
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY
from trio_mcp.types import Implementation
from trio_mcp_transports.memory import MemoryChannel, memory_pair


class Wire(ChannelPeer):
    """The server's end."""

    async def request(self, method: str) -> Json:
        """Return the next message, which is this request of the client."""
        return await self.question(method)

    async def ask(self, request_id: int | str, method: str, params: Json) -> None:
        """Send a request to the client."""
        await self.send({"id": request_id, "method": method, "params": params})


class Pending:
    """A call of the client that runs in a task of its own."""

    def __init__(self) -> None:
        self._over = trio.Event()
        self._outcome: outcome.Outcome[Any] | None = None

    async def run(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], options: Json) -> None:
        async def call() -> Any:
            return await fn(*args, **options)

        self._outcome = await outcome.acapture(call)
        self._over.set()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    async def result(self) -> Any:
        """What the call returned, or what it raised."""
        with trio.fail_after(BOUND):
            await self._over.wait()
        assert self._outcome is not None
        return self._outcome.unwrap()


Start = Callable[..., Pending]


@asynccontextmanager
async def unopened(
    *,
    mode: str = "auto",
    on_log: Any = None,
    on_change: Any = None,
    cache: Any = None,
    probe_timeout: float = 5,
    **handlers: Any,
) -> AsyncIterator[tuple[Client, Wire, Start]]:
    """A client that is not open yet, the server it will meet, and a way to run its methods in tasks."""
    ours, theirs = memory_pair()

    @asynccontextmanager
    async def channel() -> AsyncIterator[MemoryChannel]:
        async with ours:
            yield ours

    options = ClientOptions(
        handlers=Handlers(**handlers),
        on_log=on_log,
        on_change=on_change,
        cache=cache or NO_CACHE,
        log_level="info",
        mode=mode,
        info=Implementation(name="tester", version="1"),
        probe_timeout=probe_timeout,
    )
    client = Client(channel(), options)
    async with trio.open_nursery() as nursery:

        def start(fn: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Pending:
            pending = Pending()
            nursery.start_soon(pending.run, fn, args, options)
            return pending

        yield client, Wire(theirs), start
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def opening_client(**options: Any) -> AsyncIterator[tuple[Client, Wire, Pending]]:
    """A client that opens in a task of its own, the server, and what becomes of the opening; closed at the end."""
    async with unopened(**options) as (client, wire, start):
        yield client, wire, start(client.open)
        await client.aclose()


@asynccontextmanager
async def conversation(
    opening: Callable[[Wire], Awaitable[None]], **options: Any
) -> AsyncIterator[tuple[Client, Wire, Start]]:
    """The same with a client that is open."""
    async with unopened(**options) as (client, wire, start):
        opened = start(client.open)
        await opening(wire)
        await opened.result()
        yield client, wire, start
        with trio.CancelScope(shield=True):
            await client.aclose()


async def as_modern(wire: Wire) -> None:
    await wire.respond(await wire.request("server/discover"), discovered())


async def as_legacy(wire: Wire, version: str = NEWEST_LEGACY) -> None:
    await wire.fail(await wire.request("server/discover"), METHOD_NOT_FOUND)
    await handshake(wire, version)


async def handshake(wire: Wire, version: str = NEWEST_LEGACY) -> Json:
    """Answer `initialize`; returns its params."""
    request = await wire.request("initialize")
    await wire.respond(request, initialized(version))
    await wire.notification("notifications/initialized")
    return request["params"]


def discovered(*versions: str) -> Json:
    return {
        "resultType": "complete",
        "supportedVersions": list(versions or (MODERN,)),
        "capabilities": {"tools": {}},
        "instructions": "Be kind.",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "scripted", "version": "2"}},
    }


def initialized(version: str = NEWEST_LEGACY) -> Json:
    return {
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "scripted", "version": "2"},
        "instructions": "Be kind.",
    }


def said(text: str) -> Json:
    """The result of a tool that said something."""
    return {"content": [{"type": "text", "text": text}]}


def asking(*keys: str, state: str | None = None) -> Json:
    """An interim result with a question under each key."""
    params = {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": {}}}
    result: Json = {"resultType": "input_required"}
    if keys:
        result["inputRequests"] = {key: {"method": "elicitation/create", "params": params} for key in keys}
    if state is not None:
        result["requestState"] = state
    return result
