"""Principals over HTTP, with an authenticated proxy between them and a server that takes all of them for one caller."""

from __future__ import annotations

import itertools
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import trio
from asgi_peer import JSON_HEADERS, AsgiPeer, Reply, modern_request, served
from relaying import ALL_SECONDS, Json
from wire_terms import TASKS_EXTENSION

from trio_mcp import Server, ServiceOptions
from trio_mcp.relay import Backfill, RelayServer
from trio_mcp.session import Envelope, KeyRing, MessageChannel, Peer, Received, Service, serve_channel
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.memory import MemoryChannel

CAPABILITIES: Json = {"elicitation": {"form": {}}, "extensions": {TASKS_EXTENSION: {}}}
TALKS = ("alone", "chain")


async def authenticate(headers: Mapping[str, str]) -> str | None:
    return headers.get("authorization", "").removeprefix("Bearer ") or None


class KnownCaller(MemoryChannel):
    """The end of a server whose peer has sent the credentials of the proxy."""

    in_process = False

    async def receive(self) -> Envelope[Received]:
        return (await super().receive())._replace(peer=Peer("the proxy"))


class ProxyEnd(MemoryChannel):
    """The end of a proxy, which knows nothing of the process at the other one."""

    in_process = False


def behind_a_proxy(service: Service, name: str | None = None) -> RelayServer:
    """Return a proxy that has one service behind it, as one of HTTP is for all connections."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[MessageChannel]:
        to_server, from_proxy = trio.open_memory_channel[bytes](math.inf)
        to_proxy, from_server = trio.open_memory_channel[bytes](math.inf)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_channel, service, KnownCaller(to_proxy, from_proxy))
            async with ProxyEnd(to_server, from_server) as channel:
                yield channel
            nursery.cancel_scope.cancel()

    return RelayServer(connect, Backfill(), name=name)


class Principal:
    """One caller.

    Attributes:
        headers: those of the requests of its legacy session, once it is open.
    """

    def __init__(self, peer: AsgiPeer, name: str, era: str) -> None:
        self.peer, self.era = peer, era
        self.who = {"authorization": f"Bearer {name}"}
        self.headers: dict[str, str] = {**JSON_HEADERS, **self.who}
        self._ids = iter(range(10, 1000))

    async def open(self) -> None:
        if self.era == "legacy":
            self.headers = await self.peer.open_session(CAPABILITIES, who=self.who)

    def start(self, method: str, params: Json, meta: Json | None = None) -> Reply:
        number = next(self._ids)
        if self.era == "modern":
            declared = {"io.modelcontextprotocol/clientCapabilities": CAPABILITIES, **(meta or {})}
            body, headers = modern_request(method, params, id=number, meta=declared)
            name = params.get("name") or params.get("uri") or params.get("taskId")
            named = {"mcp-name": name} if name else {}
            return self.peer.start(body, {**headers, **named, **self.who})
        more = {"_meta": meta} if meta else {}
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **more}}
        return self.peer.start(body, self.headers)

    async def request(self, method: str, meta: Json | None = None, **params: Any) -> Json:
        """Send a request, and return its reply without the id."""
        reply = (await self.start(method, params, meta).end()).last
        return {name: value for name, value in reply.items() if name not in ("id", "jsonrpc")}

    async def call(self, name: str, meta: Json | None = None, **arguments: Any) -> Json:
        return await self.request("tools/call", meta, name=name, arguments=arguments)


@asynccontextmanager
async def principals(
    server: Server,
    *,
    host: str = "modern",
    way: str = "alone",
    keys: Sequence[KeyRing | None] = (None,),
    names: Sequence[str | None] = (None,),
) -> AsyncIterator[list[Principal]]:
    """Serve a proxy of a server, or a proxy of a proxy, to alice and bob over HTTP.

    Args:
        keys: of the proxy; for each there is one more that is served to both.
        names: of as many proxies, each with all of the keys.
    """
    async with AsyncExitStack() as stack:
        stack.enter_context(trio.fail_after(ALL_SECONDS))
        service = await stack.enter_async_context(server.open_service())
        if way == "chain":
            opened: AbstractAsyncContextManager[Service] = behind_a_proxy(service).open_service()
            service = await stack.enter_async_context(opened)
        found: list[Principal] = []
        for name, ring in itertools.product(names, keys):
            again = behind_a_proxy(service, name).copy(options=ServiceOptions(keys=ring))
            peer = await stack.enter_async_context(served(asgi_app(again, authenticate=authenticate)))
            found += [Principal(peer, who, host) for who in ("alice", "bob")]
        for each in found:
            await each.open()
        yield found
