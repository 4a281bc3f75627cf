"""One conversation over each real wire, and one each way with the official SDK.

`make test` runs it, so that a wire that is broken altogether is noticed at once; the rules of the wires are in `tests/wires`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from serving import IMPORTS
from smoke_server import server

from trio_mcp import Client, accept
from trio_mcp_transports.http import serve_http

HERE = Path(__file__).parent
LIMIT = 30.0
COMMAND = [sys.executable, str(HERE / "smoke_server.py")]
LEGACY, MODERN = "2025-11-25", "2026-07-28"


@asynccontextmanager
async def reached(wire: str) -> AsyncIterator[dict[str, Any]]:
    """What `Client.connect` takes to reach the server over this wire, for the length of the block."""
    if wire == "stdio":
        yield {"target": COMMAND, "env": IMPORTS}
        return
    async with trio.open_nursery() as nursery:
        serve = partial(serve_http, server, port=0, sse_path="/sse", announce=False, signals=False)
        http, sse = await nursery.start(serve)
        paths = {"http": http, "sse": sse, "websocket": http.replace("http", "ws", 1)}
        yield {"target": paths[wire]}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("wire", "version"),
    [
        ("stdio", LEGACY),
        ("stdio", MODERN),
        ("http", LEGACY),
        ("http", MODERN),
        ("sse", "2024-11-05"),
        ("websocket", LEGACY),
        ("websocket", MODERN),
    ],
)
async def test_a_conversation_over_each_wire(wire: str, version: str) -> None:
    progress = []
    with trio.fail_after(LIMIT):
        async with reached(wire) as how:
            target = how.pop("target")
            async with Client.connect(target, mode=version, on_elicit=lambda _: accept(value="Ada"), **how) as client:
                assert client.protocol_version == version
                assert [tool.name for tool in await client.list_tools()] == ["add", "count", "greet", "wait", "waits"]
                assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
                assert (await client.call_tool("count", {"n": 3}, on_progress=progress.append)).text == "counted"
                if version > "2025-03-26":
                    assert (await client.call_tool("greet")).text == "Hello Ada"
                before = (await client.call_tool("waits")).text.count("wait")
                await cancelled_call(client)
                while (await client.call_tool("waits")).text.count("wait") == before:
                    await trio.lowlevel.checkpoint()
    assert [report.progress for report in progress] == [1, 2, 3]


async def cancelled_call(client: Client) -> None:
    """Call the tool that waits, and cancel the call once the tool has reported progress."""
    with trio.CancelScope() as scope:
        await client.call_tool("wait", on_progress=lambda _: scope.cancel())
    assert scope.cancelled_caught


# the official SDK


async def test_the_official_client_calls_our_server() -> None:
    mcp = pytest.importorskip("mcp", reason="the official SDK is not installed")
    parameters = mcp.StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env={**os.environ, **IMPORTS})
    with trio.fail_after(LIMIT):
        async with mcp.Client(parameters) as client:
            assert client.protocol_version == MODERN
            result = await client.call_tool("add", {"a": 2, "b": 3})
    assert result.structured_content == {"result": 5}


async def test_our_client_calls_the_official_server() -> None:
    pytest.importorskip("mcp", reason="the official SDK is not installed")
    code = """
from mcp.server import MCPServer
server = MCPServer("official")
@server.tool()
async def add(a: int, b: int) -> int:
    return a + b
server.run("stdio")
"""
    with trio.fail_after(LIMIT):
        async with Client.connect([sys.executable, "-c", code]) as client:
            assert client.protocol_version == MODERN
            result = await client.call_tool("add", {"a": 2, "b": 3})
    assert result.structured_content == {"result": 5}
