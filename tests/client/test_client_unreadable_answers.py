"""A call whose answer cannot be read fails, and says why; it never waits for an answer that was dropped."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import memory_stream_pair

from trio_mcp.client import Client, ClientOptions
from trio_mcp.errors import PeerError, RemoteProtocolError
from trio_mcp.protocol.revisions import NEWEST_LEGACY
from trio_mcp.types import Implementation
from trio_mcp_transports.stdio.channel import LineChannel

INFO = Implementation(name="t", version="1")
LIMIT = 5_000
VALUES = 1_000
HANDSHAKE = {
    "protocolVersion": NEWEST_LEGACY,
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "s", "version": "1"},
}


async def serve(stream: trio.abc.Stream, answer: bytes) -> None:
    """Answer `initialize`, and each other request with these bytes, in which `%d` stands for its id."""
    buffer = b""
    async for chunk in stream:
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in filter(None, lines):
            message = json.loads(line)
            if message["method"] == "initialize":
                await stream.send_all(
                    json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": HANDSHAKE}).encode() + b"\n"
                )
            elif "id" in message:
                await stream.send_all(answer % message["id"] + b"\n")


@asynccontextmanager
async def client_of(answer: bytes) -> AsyncIterator[Client]:
    ours, theirs = memory_stream_pair()

    @asynccontextmanager
    async def connect() -> AsyncIterator[LineChannel]:
        channel = LineChannel(ours, ours, max_line=LIMIT, max_values=VALUES)
        yield channel
        await channel.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, theirs, answer)
        async with Client(connect(), ClientOptions(mode=NEWEST_LEGACY, info=INFO)) as client:
            yield client
        nursery.cancel_scope.cancel()


BIG = b"x" * LIMIT


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (b'{"jsonrpc":"2.0","id":%%d,"result":{"content":[{"type":"text","text":"%b"}]}}' % BIG, "max_line"),
        (b'{"result":{"content":[{"type":"text","text":"%b"}]},"jsonrpc":"2.0","id":%%d}' % BIG, "max_line"),
        (b'{"jsonrpc":"2.0","id":%%d,"result":{"content":[%b1]}}' % (b"1," * VALUES), "max_values"),
        (b'{"result":{"content":%b%b},"jsonrpc":"2.0","id":%%d}' % (b"[" * 99, b"]" * 99), "max_depth"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"structuredContent":{"a":NaN},"content":[]}}', "NaN"),
        (b'{"jsonrpc":"2.0","id":%d,"result":{"content":[', "JSON"),
        (b'[{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}]', "batches"),
        (b'{"jsonrpc":"2.0","id":%d}', "result"),
        (b'{"jsonrpc":"2.0","id":%d,"method":"tools/call","result":{"content":[]}}', "method"),
    ],
    ids=[
        "over the limit",
        "over the limit, id last",
        "values",
        "depth",
        "NaN",
        "cut short",
        "in a batch",
        "without a result",
        "with a method",
    ],
)
async def test_a_call_whose_answer_cannot_be_read_fails_and_says_why(
    answer: bytes, names: str, autojump_clock: trio.testing.MockClock
) -> None:
    async with client_of(answer) as client:
        with trio.fail_after(60), pytest.raises(RemoteProtocolError, match=names):
            await client.call_tool("picture")


async def test_the_one_open_call_fails_with_an_error_whose_server_could_not_read_its_id(
    autojump_clock: trio.testing.MockClock,
) -> None:
    answer = b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"too deep","data":%d}}'
    async with client_of(answer) as client:
        with trio.fail_after(60), pytest.raises(PeerError, match="too deep"):
            await client.call_tool("picture")
