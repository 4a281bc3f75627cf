"""The official Python SDK's client asks tools that are behind a proxy, and in a mounted server, over real wires."""

from __future__ import annotations

import pytest
import trio
from mcp.shared.exceptions import MCPError
from official import QUIET, User, accepting, client_of, only_text
from processes import NEWEST, Target
from wire_terms import MODERN

LIMIT = 40.0

pytestmark = QUIET


@pytest.mark.parametrize(("revision", "transport"), NEWEST)
@pytest.mark.parametrize(("script", "prefix"), [("proxy_server.py", ""), ("composed_server.py", "peer_")])
async def test_a_conversation_of_the_official_client(
    target: Target, script: str, prefix: str, revision: str, transport: str
) -> None:
    user, mode = User(*[accepting(value=7)] * 3, accepting(value="Ann")), "auto" if revision == MODERN else "legacy"
    options = {"elicitation_callback": user.elicit, "sampling_callback": user.sample, "logging_callback": user.log}
    with trio.fail_after(LIMIT):
        async with client_of(target(script, transport), mode, **options) as client:
            assert client.protocol_version == revision
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert listed[f"{prefix}number"].description == "Add two numbers."
            number = await client.call_tool(f"{prefix}number", {"a": 2, "b": 3})
            assert (only_text(number), number.structured_content) == ("5", {"result": 5})
            assert only_text(await client.call_tool(f"{prefix}add_up")) == "21"
            thought = await client.call_tool(f"{prefix}think", {"about": "trees"})
            assert only_text(thought) == "m-1: So be it."
            counted = await client.call_tool(f"{prefix}count", {"n": 3}, progress_callback=user.report)
            assert only_text(counted) == "counted"
            whole = await client.call_tool(f"{prefix}whole")
            assert (whole.meta or {})["example.com/k"] == 1
            refused = await client.call_tool(f"{prefix}refuse", {"why": "not today"})
            assert (refused.is_error, only_text(refused)) == (True, "not today")
            with pytest.raises(MCPError):
                await client.call_tool(f"{prefix}nothing_of_that_name")
            if prefix:
                assert only_text(await client.call_tool("near_ask")) == "Ann"
    assert [progress for progress, *_ in user.reports] == [1, 2, 3]
    assert [question.message for question in user.asked[:3]] == ["A number?"] * 3
