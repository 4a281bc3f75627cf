"""A call of a mounted server leaves nothing, wherever it is interrupted."""

from __future__ import annotations

import pytest
from scenarios import effects, server
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Client, Server, accept
from trio_mcp.testing import sweep

outer = Server("outer", version="1")
outer.mount("s", server)


async def a_conversation(client: Client) -> None:
    assert (await client.call_tool("s_plain")).text == "done"
    assert not (await client.call_tool("s_asking")).is_error
    await client.read_resource("note://s/today")


@pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN])
def test_it_leaves_nothing(mode: str, request: pytest.FixtureRequest) -> None:
    stride = 1 if request.config.getoption("every_step") else 7
    report = sweep(
        outer, a_conversation, mode=mode, on_elicit=lambda _asked: accept(value=1), effects=effects, stride=stride
    )
    report.check()
    assert report.runs * stride > report.steps
