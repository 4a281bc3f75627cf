"""The program of docs/backfill.md works, and the page says what the command does."""

from __future__ import annotations

import pytest
import trio
from pages import Page

from trio_mcp import Client
from trio_mcp.base.shared_limits import ANSWERED_QUESTIONS
from trio_mcp.relay import RelayServer

PAGE = Page("backfill")


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_its_proxy_gives_its_server_a_model(mode: str) -> None:
    proxy = PAGE.run()["proxy"]
    assert isinstance(proxy, RelayServer)
    with trio.fail_after(10):
        async with Client.connect(proxy, mode=mode) as client:
            assert (await client.call_tool("think")).text == "No."


def test_its_limit_is_that_of_the_proxy() -> None:
    assert f"more than {ANSWERED_QUESTIONS.limit} questions at a time" in PAGE.prose
