"""The contract's server under uvicorn, in a child process: an asyncio host, of which Trio is the guest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path

import trio
from makers import IMPORTS, START, SseMaker, StreamableHttpMaker, WebSocketMaker

from trio_mcp.testing.contract import Proxy, Stage, open_proxy, open_stage_port

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
    stage: Stage, grace: float, kind: Sequence[str] = ("h11", "asyncio")
) -> AsyncIterator[tuple[Child, Proxy]]:
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
                yield Child(process, lines), proxy
            await process.stdin.aclose()


class UvicornMaker(StreamableHttpMaker):
    """Args: the implementation of HTTP, and of the event loop."""

    def __init__(self, http: str, loop: str) -> None:
        self.kind = (http, loop)
        self.name = f"http-{http}-{loop}"

    def reached(self, stage: Stage, grace: float) -> AbstractAsyncContextManager[tuple[Child, Proxy]]:
        return open_child(stage, grace, self.kind)


class UvicornSseMaker(SseMaker):
    name = "sse-uvicorn"

    def reached(self, stage: Stage, grace: float) -> AbstractAsyncContextManager[tuple[Child, Proxy]]:
        return open_child(stage, grace)


class UvicornWebSocketMaker(WebSocketMaker):
    name = "websocket-uvicorn"

    def reached(self, stage: Stage, grace: float) -> AbstractAsyncContextManager[tuple[Child, Proxy]]:
        return open_child(stage, grace)
