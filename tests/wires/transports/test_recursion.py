"""A tool that calls its own server over the wire ends, or meets a limit that has a name (reliability row 82)."""

from __future__ import annotations

import trio
from serving import served

from trio_mcp import Client, PeerError, Server, ToolError
from trio_mcp.runtime import Limits
from trio_mcp.session import ServiceOptions

BOUND = 20


def recursive(**limits: int) -> Server:
    server = Server("recursive", version="1", options=ServiceOptions(actors=Limits(**limits)))

    @server.tool
    async def again(url: str, mode: str, times: int) -> str:
        if not times:
            return "the bottom"
        async with Client.connect(url, mode=mode) as client:
            try:
                result = await client.call_tool("again", {"url": url, "mode": mode, "times": times - 1})
            except PeerError as error:
                raise ToolError(error.message) from error
            if result.is_error:
                raise ToolError(result.text)
            return result.text

    return server


async def test_a_tool_may_call_itself_over_the_wire(mode: str) -> None:
    with trio.fail_after(BOUND):
        async with served(recursive()) as url, Client.connect(url, mode=mode) as client:
            result = await client.call_tool("again", {"url": url, "mode": mode, "times": 5})
    assert result.text == "the bottom"


async def test_a_tool_that_never_stops_calling_itself_meets_the_limit_and_leaves_nothing(mode: str) -> None:
    server = recursive(actors=5)
    with trio.fail_after(BOUND):
        async with served(server) as url, Client.connect(url, mode=mode) as client:
            result = await client.call_tool("again", {"url": url, "mode": mode, "times": 1_000_000})
            (service,) = server.services
            assert service.statistics().is_idle
    assert result.is_error
    assert "Limits.actors" in result.text
