"""What a call through a group costs beside one through a client."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from types import FrameType

import pytest
import trio

from trio_mcp import Client, ClientGroup

ECHO = """
from trio_mcp import Server
server = Server("s")

@server.tool
async def echo(text: str) -> str:
    return text

server.run()
"""
CALLS = 20
MOST = 1.3


async def function_calls(call: Callable[[], Awaitable[object]]) -> float:
    """Return how many functions this process calls for one call of the tool, which runs in another process."""
    counted = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    for _ in range(CALLS):
        await call()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        for _ in range(CALLS):
            await call()
    finally:
        sys.setprofile(before)
    return counted / CALLS


@pytest.mark.wires
@pytest.mark.trio(run=trio.run)
async def test_a_call_through_a_group_costs_little_more_than_one_through_a_client(mode: str) -> None:
    command = [sys.executable, "-c", ECHO]
    with trio.fail_after(60):
        async with Client.connect(command, mode=mode) as client:
            alone = await function_calls(lambda: client.call_tool("echo", {"text": "x"}))
        async with ClientGroup({"a": command, "b": command, "a_b": command}, mode=mode) as group:
            grouped = await function_calls(lambda: group.call_tool("a_echo", {"text": "x"}))
    assert alone < grouped < MOST * alone
