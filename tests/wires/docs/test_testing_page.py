"""The test on docs/testing.md that serves on a socket passes."""

from __future__ import annotations

import trio
from pages import Page
from serving import START


async def test_the_test_over_http_passes() -> None:
    with trio.fail_after(START):
        await Page("testing").run()["test_a_tool_over_http"]()
