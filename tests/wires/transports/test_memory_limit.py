"""A tool that runs out of memory, in a process with a hard limit: its call fails, and the server goes on (reliability row 81)."""

from __future__ import annotations

import sys
from pathlib import Path

import trio
from serving import IMPORTS, child

from trio_mcp import Client

APP = Path(__file__).with_name("memory_limited_app.py")
MIB = 1024 * 1024
ROOM = 512 * MIB
"""Address space for what the server needs besides: each thread takes some megabytes of it."""
LIMIT = 30.0
TOOLS = ("allocate", "allocate_in_thread")


async def assert_contained(client: Client) -> None:
    """What a tool cannot allocate fails its own call, and another is answered."""
    for tool in TOOLS:
        result = await client.call_tool(tool, {"size": 2 * ROOM})
        assert result.is_error
        assert "MemoryError" not in result.text
        assert (await client.call_tool(tool, {"size": MIB})).text == str(MIB)
    assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"


async def test_a_tool_that_runs_out_of_memory_fails_its_call_and_the_server_goes_on_over_stdio(mode: str) -> None:
    command = [sys.executable, str(APP), "stdio", str(ROOM)]
    with trio.fail_after(LIMIT):
        async with Client.connect(command, mode=mode, env=IMPORTS) as client:
            await assert_contained(client)


async def test_a_tool_that_runs_out_of_memory_fails_its_call_and_the_server_goes_on_over_http(mode: str) -> None:
    async with child(APP, "http", str(ROOM), limit=LIMIT) as process:
        async with Client.connect(await process.announced(), mode=mode) as client:
            await assert_contained(client)
