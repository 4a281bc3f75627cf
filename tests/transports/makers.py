"""The transports of this project, as the contract sees them."""

# ruff: noqa: SLF001  bytes that are not a message bypass the channels

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import httpx2
import trio
from lending import lent_server
from more_rules import catalogue

from trio_mcp.session import Envelope, Service, serve_channel
from trio_mcp.testing.contract import LEGACY, MODERN, Proxy, Stage, Trait, open_proxy, open_stage_port
from trio_mcp_transports import stdio
from trio_mcp_transports.http import HttpLimits, McpApp, asgi_app
from trio_mcp_transports.http.client import channel as http_client
from trio_mcp_transports.hypercorn.serve import serve_asgi
from trio_mcp_transports.memory import MemoryChannel, memory_pair
from trio_mcp_transports.sse import client as sse_client
from trio_mcp_transports.websocket import client as websocket_client

Connection = AbstractAsyncContextManager[trio.abc.Channel[Envelope]]
SendBytes = Callable[[trio.abc.Channel[Envelope], bytes], Awaitable[bytes]]

ROOT = Path(__file__).parents[2]
IMPORTS = os.pathsep.join([str(ROOT), str(ROOT / "transports")])
ALL = tuple(sorted((*LEGACY, *MODERN)))
START = 30.0
MORE_RULES = catalogue
"""Registered beside those of the package, for every transport of ours."""


class MemoryEndpoint:
    def __init__(self, service: Service, nursery: trio.Nursery) -> None:
        self._service = service
        self._nursery = nursery
        self._channels: list[MemoryChannel] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[MemoryChannel]:
        ours, theirs = memory_pair()
        self._channels.append(ours)
        self._nursery.start_soon(serve_channel, self._service, theirs)
        async with ours:
            yield ours

    async def cut(self) -> None:
        for channel in self._channels:
            await channel.aclose()

    async def stop(self, seconds: float) -> None:
        await self._service.drain(seconds)

    def stall(self) -> None:
        raise NotImplementedError

    async def send_bytes(self, channel: trio.abc.Channel[Envelope], data: bytes) -> bytes:
        raise NotImplementedError


class MemoryMaker:
    name = "memory"
    revisions = ALL
    traits = frozenset({Trait.SHARED, Trait.VIRTUAL, Trait.SERVES_MANY})
    endpoint = MemoryEndpoint

    @asynccontextmanager
    async def serve(self, stage: Stage, *, grace: float) -> AsyncIterator[MemoryEndpoint]:
        with lent_server(stage) as server:
            async with server.open_service() as service, trio.open_nursery() as nursery:
                yield self.endpoint(service, nursery)
                nursery.cancel_scope.cancel()


class StdioMaker:
    name = "stdio"
    revisions = ALL
    command: Sequence[str] = (sys.executable, str(ROOT / "tests" / "contract" / "stdio_child.py"))
    traits = frozenset({Trait.SHARED, Trait.CHILD, Trait.TEXT, Trait.BYTES})

    @asynccontextmanager
    async def serve(self, stage: Stage, *, grace: float) -> AsyncIterator[StdioEndpoint]:
        async with open_stage_port(stage) as port:
            yield StdioEndpoint([*self.command, str(port)])


class ForkedStdioMaker(StdioMaker):
    """The same with a server that is forked off, behind a launcher; see `forks.py`."""

    traits = StdioMaker.traits - {Trait.CHILD}

    def __init__(self, command: list[str]) -> None:
        self.command = command


class StdioEndpoint:
    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._channels: list[stdio.ProcessChannel] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[stdio.ProcessChannel]:
        async with stdio.connect(self._command, env={"PYTHONPATH": IMPORTS}) as channel:
            self._channels.append(channel)
            yield channel

    async def cut(self) -> None:
        for channel in self._channels:
            stdin = channel.process.stdin
            assert stdin is not None
            await stdin.aclose()

    async def stop(self, seconds: float) -> None:
        for channel in self._channels:
            channel.process.terminate()
            await channel.process.wait()

    def stall(self) -> None:
        raise NotImplementedError

    async def send_bytes(self, channel: trio.abc.Channel[Envelope], data: bytes) -> bytes:
        assert isinstance(channel, stdio.ProcessChannel)
        assert channel.process.stdin is not None
        await channel.process.stdin.send_all(data + b"\n")
        return b""


class NetworkMaker:
    """A transport over a network, which is served by `reached`."""

    url: str
    connect: Callable[[str], Connection]
    send: SendBytes

    def reached(self, stage: Stage, grace: float) -> AbstractAsyncContextManager[tuple[Drains, Proxy]]:
        return open_application(stage, grace)

    @asynccontextmanager
    async def serve(self, stage: Stage, *, grace: float) -> AsyncIterator[ProxiedEndpoint]:
        async with self.reached(stage, grace) as (app, proxy):
            yield ProxiedEndpoint(app, proxy, partial(self.connect, self.url.format(proxy.port)), self.send)


async def post_bytes(channel: trio.abc.Channel[Envelope], data: bytes) -> bytes:
    assert isinstance(channel, http_client.HttpChannel)
    connection = channel._connection
    return await posted(
        connection.http, connection.url, data, {"accept": "application/json, text/event-stream", **connection.session}
    )


async def frame_bytes(channel: trio.abc.Channel[Envelope], data: bytes) -> bytes:
    assert isinstance(channel, websocket_client.WebSocketChannel)
    assert channel._socket is not None
    await channel._socket.send_message(data.decode())
    return b""


async def post_bytes_beside_the_stream(channel: trio.abc.Channel[Envelope], data: bytes) -> bytes:
    assert isinstance(channel, sse_client.SseChannel)
    return await posted(channel._connection.http, channel._uri, data, {})


async def posted(http: httpx2.AsyncClient, url: str, data: bytes, headers: Mapping[str, str]) -> bytes:
    """The answer to a POST of these bytes, which are no message."""
    response = await http.post(url, content=data, headers={"content-type": "application/json", **headers})
    assert response.status_code == 400, response.text
    return response.content


class StreamableHttpMaker(NetworkMaker):
    name = "http"
    revisions = tuple(name for name in ALL if name > "2024-11-05")
    traits = frozenset({Trait.STREAMS, Trait.RESUMES, Trait.SOCKET, Trait.SERVES_MANY, Trait.TEXT, Trait.BYTES})
    url = "http://127.0.0.1:{}/mcp"
    connect, send = staticmethod(http_client.connect), staticmethod(post_bytes)


class WebSocketMaker(NetworkMaker):
    name = "websocket"
    revisions = ALL
    traits = frozenset({Trait.SHARED, Trait.SOCKET, Trait.SERVES_MANY, Trait.TEXT})
    url = "ws://127.0.0.1:{}/mcp"
    connect, send = staticmethod(websocket_client.connect), staticmethod(frame_bytes)


class SseMaker(NetworkMaker):
    name = "sse"
    revisions = ALL
    traits = frozenset({Trait.SHARED, Trait.SOCKET, Trait.SERVES_MANY, Trait.TEXT, Trait.BYTES})
    url = "http://127.0.0.1:{}/sse"
    connect, send = staticmethod(sse_client.connect_sse), staticmethod(post_bytes_beside_the_stream)


@asynccontextmanager
async def open_application(stage: Stage, grace: float) -> AsyncIterator[tuple[McpApp, Proxy]]:
    """The contract's server under hypercorn, and a network in front of it."""
    with lent_server(stage) as server:
        app = asgi_app(server, sse_path="/sse", limits=HttpLimits(disconnect_grace=grace))
        async with trio.open_nursery() as nursery:
            with trio.fail_after(START):
                (url,) = await nursery.start(partial(serve_asgi, app, port=0, signals=False))
            async with open_proxy(int(url.partition(" ")[0].rpartition(":")[2])) as proxy:
                yield app, proxy
            nursery.cancel_scope.cancel()


class Drains(Protocol):
    """The served application, as far as an endpoint is concerned."""

    async def drain(self, seconds: float) -> None: ...


class ProxiedEndpoint:
    def __init__(self, app: Drains, proxy: Proxy, connect: Callable[[], Connection], send_bytes: SendBytes) -> None:
        self._app = app
        self._proxy = proxy
        self.connect = connect
        self.send_bytes = send_bytes

    async def cut(self) -> None:
        await self._proxy.cut()

    async def stop(self, seconds: float) -> None:
        await self._app.drain(seconds)

    def stall(self) -> None:
        self._proxy.stall()


ALL_MAKERS = (MemoryMaker(), StdioMaker(), StreamableHttpMaker(), SseMaker(), WebSocketMaker())
