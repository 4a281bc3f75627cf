"""What `trio-mcp call` says about a tool that needs more than the command can do."""

from __future__ import annotations

import pytest
from naming import naming, unnamed

from trio_mcp import Client, Server
from trio_mcp.cli.command import CommandError, rejected
from trio_mcp.cli.commands.call import choose
from trio_mcp.cli.connecting import is_legacy


def test_a_model_with_tools_is_no_option_of_the_command() -> None:
    text = str(rejected("the tool ask needs a client", {"sampling": {"tools": {}}}))
    assert unnamed(text, "trio-mcp call cannot answer with tools") == []
    assert "--sample" not in text
    assert "--sample TEXT" in str(rejected("the tool ask needs a client", {"sampling": {}}))


@pytest.mark.parametrize(("mode", "hidden"), [("legacy", True), ("modern", False)])
async def test_a_tool_that_a_legacy_server_may_hide_is_missing_for_this_client(mode: str, hidden: bool) -> None:
    async with Client.connect(Server("s"), mode=mode) as client:
        assert is_legacy(client) is hidden
    with pytest.raises(CommandError, match=naming("ask")) as caught:
        choose([], "ask", for_client=hidden)
    assert ("for this client" in str(caught.value)) is hidden
