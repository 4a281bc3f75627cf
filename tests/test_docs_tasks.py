"""The code of docs/tasks.md is one program, and does what the page says."""

from __future__ import annotations

import pytest
import trio
from pages import Names, Page

from trio_mcp import Client, accept

PAGE = Page("tasks")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


async def test_the_main_function_prints_what_its_comments_say(page: Names, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await page["main"]()
    assert capsys.readouterr().out.splitlines() == ["bees: 4 sources, public", "working", "wasps: 5 sources, public"]


async def test_a_legacy_client_asks_for_the_task(page: Names) -> None:
    with trio.fail_after(BOUND):
        async with Client.connect(page["server"], mode="legacy", on_elicit=lambda _: accept(value=False)) as client:
            result = await client.call_tool("report", {"topic": "ants"}, task=True)
            assert result.text == "ants: 4 sources, internal"


async def test_a_tool_that_asks_first_becomes_a_task(page: Names) -> None:
    with trio.fail_after(BOUND):
        async with Client.connect(page["server"], on_elicit=lambda _: accept(value=1990)) as client:
            task = await client.start_tool("archive")
            assert task.id
            assert (await task.result()).text == "archived 1990"
            assert (await client.call_tool("archive")).text == "archived 1990"


def test_the_limits_are_those_of_the_page(page: Names) -> None:
    assert page["options"].tasks.open_per_owner == 20
