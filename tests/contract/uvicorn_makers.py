"""The contract's server under uvicorn, in a child process: an asyncio host, of which Trio is the guest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

import trio
from makers import (
    IMPORTS,
    START,
    Connection,
    ProxiedEndpoint,
    SendBytes,
    SseMaker,
    StreamableHttpMaker,
    WebSocketMaker,
    frame_bytes,
    post_bytes,
    post_bytes_beside_the_stream,
)

from trio_mcp.testing.contract import Stage, open_proxy, open_stage_port
from trio_mcp_transports.http.client import channel as http_client
from trio_mcp_transports.sse import client as sse_client
from trio_mcp_transports.websocket import client as websocket_client

COMMAND = [sys.executable, str(Path(__file__).with_name("uvicorn_child.py"))]
"""Starts the child; a test may put one that forks it off in its place (`forks.py`)."""


class Child:
    """The child, as far as an endpoint is concerned."""

    def __init__(self, process: trio.Process, lines: AsyncIterator[bytes]) -> None:
        self._process = process
        self._lines = lines

    async def drain(self, seconds: float) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.send_all(f"{seconds}\n".encode())
        await anext(self._lines)


async def lines_of(stream: trio.abc.ReceiveStream) -> AsyncGenerator[bytes]:
    left = b""
    async for data in stream:
        *lines, left = (left + data).split(b"\n")
        for line in lines:
            yield line


@asynccontextmanager
async def open_child(
    stage: Stage, grace: float, kind: Sequence[str], connect: Callable[[int], Callable[[], Connection]], send: SendBytes
) -> AsyncIterator[ProxiedEndpoint]:
    """Start the child, and put a network in front of it."""
    async with open_stage_port(stage) as port, trio.open_nursery() as nursery:
        command = [*COMMAND, str(port), str(grace), *kind]
        run = partial(
            trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": IMPORTS}
        )
        process: trio.Process = await nursery.start(run)
        assert process.stdout is not None
        assert process.stdin is not None
        async with aclosing(lines_of(process.stdout)) as lines:
            with trio.fail_after(START):
                served = int(await anext(lines))
            async with open_proxy(served) as proxy:
                yield ProxiedEndpoint(Child(process, lines), proxy, connect(proxy.port), send)
            await process.stdin.aclose()


class UvicornMaker(StreamableHttpMaker):
    """Args: the implementation of HTTP, and of the event loop."""

    def __init__(self, http: str, loop: str) -> None:
        self.kind = (http, loop)
        self.name = f"http-{http}-{loop}"

    @asynccontextmanager
    async def serve(self, stage: Stage, *, grace: float) -> AsyncIterator[ProxiedEndpoint]:
        connect = lambda port: partial(http_client.connect, f"http://127.0.0.1:{port}/mcp")  # noqa: E731
        async with open_child(stage, grace, self.kind, connect, post_bytes) as endpoint:
            yield endpoint


class UvicornSseMaker(SseMaker):
    name = "sse-uvicorn"

    @asynccontextmanager
    async def serve(self, stage: Stage, *, grace: float) -> AsyncIterator[ProxiedEndpoint]:
        connect = lambda port: partial(sse_client.connect_sse, f"http://127.0.0.1:{port}/sse")  # noqa: E731
        async with open_child(stage, grace, ("h11", "asyncio"), connect, post_bytes_beside_the_stream) as endpoint:
            yield endpoint


class UvicornWebSocketMaker(WebSocketMaker):
    name = "websocket-uvicorn"

    @asynccontextmanager
    async def serve(self, stage: Stage, *, grace: float) -> AsyncIterator[ProxiedEndpoint]:
        connect = lambda port: partial(websocket_client.connect, f"ws://127.0.0.1:{port}/mcp")  # noqa: E731
        async with open_child(stage, grace, ("h11", "asyncio"), connect, frame_bytes) as endpoint:
            yield endpoint
