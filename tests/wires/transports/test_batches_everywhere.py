"""Batches (2025-03-26) over every transport there is, in the bytes that a client writes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest
import trio
from rounds_app import App
from serving import IMPORTS, served
from websocket_peer import raw

from trio_mcp.protocol.jsonrpc import INVALID_REQUEST
from trio_mcp_transports.memory import MemoryChannel

BATCHING = "2025-03-26"
LIMIT = 30.0

Sent: TypeAlias = Any


class Wire:
    """A client that writes what the test says and reads whatever comes."""

    def __init__(self, write: Callable[[bytes], Awaitable[None]], read: Callable[[], Awaitable[bytes]]) -> None:
        self._write = write
        self._read = read

    async def send(self, message: Sent) -> None:
        await self._write(json.dumps(message).encode())

    async def receive(self) -> Any:
        return json.loads(await self._read())

    async def initialize(self, version: str = BATCHING) -> None:
        client = {"name": "t", "version": "1"}
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": client}
        await self.send({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
        assert (await self.receive())["result"]["protocolVersion"] == version
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})


@asynccontextmanager
async def over_memory(log: Path) -> AsyncIterator[Wire]:
    to_server, from_client = trio.open_memory_channel[bytes](9)
    to_client, from_server = trio.open_memory_channel[bytes](9)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(App(log).server.serve_channel, MemoryChannel(to_client, from_client))
        yield Wire(to_server.send, from_server.receive)
        to_server.close()


@asynccontextmanager
async def over_stdio(log: Path) -> AsyncIterator[Wire]:
    command = [sys.executable, str(Path(__file__).with_name("rounds_app.py")), str(log)]
    process = await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=IMPORTS)
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout = process.stdin, process.stdout
    lines = bytearray()

    async def write(data: bytes) -> None:
        await stdin.send_all(data + b"\n")

    async def read() -> bytes:
        while b"\n" not in lines:
            lines.extend(await stdout.receive_some())
        line, _, rest = bytes(lines).partition(b"\n")
        lines[:] = rest
        return line

    try:
        yield Wire(write, read)
        await stdin.aclose()
        assert await process.wait() == 0
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await stdin.aclose()
            await stdout.aclose()


@asynccontextmanager
async def over_http(log: Path) -> AsyncIterator[Wire]:
    arrived, inbox = trio.open_memory_channel[bytes](9)
    session: dict[str, str] = {}

    async def post(data: bytes) -> None:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json", **session}
        async with http.stream("POST", url, content=data, headers=headers) as reply:
            if "mcp-session-id" in reply.headers:
                session["mcp-session-id"] = reply.headers["mcp-session-id"]
            if reply.headers.get("content-type") == "text/event-stream":
                async for line in reply.aiter_lines():
                    if line.startswith("data: "):
                        await arrived.send(line[6:].encode())
            elif body := await reply.aread():
                await arrived.send(body)

    async def write(data: bytes) -> None:
        nursery.start_soon(post, data)

    async with served(App(log).server) as url, httpx2.AsyncClient(timeout=LIMIT) as http:
        async with trio.open_nursery() as nursery:
            yield Wire(write, inbox.receive)
            nursery.cancel_scope.cancel()


Open: TypeAlias = Callable[[], AbstractAsyncContextManager[Wire]]


@asynccontextmanager
async def over_websocket(log: Path) -> AsyncIterator[Wire]:
    async with served(App(log).server) as url, raw(url.replace("http:", "ws:")) as peer:

        async def read() -> bytes:
            return json.dumps(await peer.hear()).encode()

        async def write(data: bytes) -> None:
            await peer.say(data.decode())

        yield Wire(write, read)


@pytest.fixture(
    params=[over_memory, over_stdio, over_http, over_websocket], ids=["memory", "stdio", "http", "websocket"]
)
def wire(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return partial(request.param, tmp_path / "log")


def call(id: int, tool: str, **meta: object) -> Sent:
    params = {"name": tool, "arguments": {}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}


def cancel(id: int) -> Sent:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


async def test_a_batch_is_answered_with_one_array(wire: Open) -> None:
    with trio.fail_after(LIMIT):
        async with wire() as peer:
            await peer.initialize()
            await peer.send([call(1, "effects"), {"jsonrpc": "2.0", "id": 2, "method": "ping"}, call(3, "nowhere"), 4])
            answers = await peer.receive()
            assert {answer.get("id") for answer in answers} == {1, 2, 3, None}
            assert len(answers) == 4


async def test_progress_goes_before_the_array_and_a_cancelled_call_is_not_in_it(wire: Open) -> None:
    with trio.fail_after(LIMIT):
        async with wire() as peer:
            await peer.initialize()
            await peer.send([call(1, "wait", progressToken="t"), {"jsonrpc": "2.0", "id": 2, "method": "ping"}])
            assert (await peer.receive())["params"]["progressToken"] == "t"
            await peer.send([cancel(1)])
            assert [answer["id"] for answer in await peer.receive()] == [2]
            await peer.send(call(3, "ended"))
            assert "client" in (await peer.receive())["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_a_batch_of_another_revision_is_refused_and_single_messages_go_on(wire: Open, version: str) -> None:
    with trio.fail_after(LIMIT):
        async with wire() as peer:
            await peer.initialize(version)
            await peer.send([call(1, "effects")])
            refused = await peer.receive()
            assert (refused.get("id"), refused["error"]["code"]) == (None, INVALID_REQUEST)
            await peer.send(call(1, "effects"))
            assert (await peer.receive())["id"] == 1
