"""The official Python SDK's client asks tools that are behind a proxy, and in a mounted server, over real wires."""

from __future__ import annotations

import pytest
import trio
from processes import MODERN, NEWEST, Target
from serving import IMPORTS

mcp = pytest.importorskip("mcp", reason="the official SDK is not installed")

import mcp_types as wire  # noqa: E402
from mcp import Client, StdioServerParameters  # noqa: E402
from mcp.shared.exceptions import MCPError  # noqa: E402

LIMIT = 40.0

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
]


class User:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.logs: list[object] = []
        self.progress: list[float] = []

    async def elicit(self, _context: object, params: wire.ElicitRequestFormParams) -> wire.ElicitResult:
        self.asked.append(params.message)
        return wire.ElicitResult(action="accept", content={"value": "Ann" if "name" in params.message else 7})

    async def sample(self, _context: object, _params: wire.CreateMessageRequestParams) -> wire.CreateMessageResult:
        content = wire.TextContent(type="text", text="So be it.")
        return wire.CreateMessageResult(role="assistant", content=content, model="m-1", stop_reason="endTurn")

    async def log(self, params: wire.LoggingMessageNotificationParams) -> None:
        self.logs.append(params.data)

    async def report(self, progress: float, _total: float | None, _message: str | None) -> None:
        self.progress.append(progress)


def text_of(result: wire.CallToolResult) -> str:
    [block] = result.content
    assert isinstance(block, wire.TextContent)
    return block.text


@pytest.mark.parametrize(("revision", "transport"), NEWEST)
@pytest.mark.parametrize(("script", "prefix"), [("proxy_server.py", ""), ("composed_server.py", "peer_")])
async def test_a_conversation_of_the_official_client(
    target: Target, script: str, prefix: str, revision: str, transport: str
) -> None:
    user = User()
    where = target(script, transport)
    server = StdioServerParameters(command=where[0], args=where[1:], env=IMPORTS) if isinstance(where, list) else where
    options = {"elicitation_callback": user.elicit, "sampling_callback": user.sample, "logging_callback": user.log}
    with trio.fail_after(LIMIT):
        async with Client(server, mode="auto" if revision == MODERN else "legacy", **options) as client:
            assert client.protocol_version == revision
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert listed[f"{prefix}number"].description == "Add two numbers."
            number = await client.call_tool(f"{prefix}number", {"a": 2, "b": 3})
            assert (text_of(number), number.structured_content) == ("5", {"result": 5})
            assert text_of(await client.call_tool(f"{prefix}add_up")) == "21"
            thought = await client.call_tool(f"{prefix}think", {"about": "trees"})
            assert text_of(thought) == "m-1: So be it."
            counted = await client.call_tool(f"{prefix}count", {"n": 3}, progress_callback=user.report)
            assert text_of(counted) == "counted"
            whole = await client.call_tool(f"{prefix}whole")
            assert (whole.meta or {})["example.com/k"] == 1
            refused = await client.call_tool(f"{prefix}refuse", {"why": "not today"})
            assert (refused.is_error, text_of(refused)) == (True, "not today")
            with pytest.raises(MCPError):
                await client.call_tool(f"{prefix}nothing_of_that_name")
            if prefix:
                assert text_of(await client.call_tool("near_ask")) == "Ann"
    assert user.progress == [1, 2, 3]
    assert user.asked[:3] == ["A number?"] * 3
