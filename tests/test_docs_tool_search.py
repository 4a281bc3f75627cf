"""The code of docs/tool-search.md is one program, and does what the page says."""

from __future__ import annotations

import json

import pytest
import trio
from pages import Names, Page

from trio_mcp import Client, ToolSearch
from trio_mcp.server.tools.search_index import MAX_TERMS

PAGE = Page("tool-search")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


async def test_the_main_program_prints_what_the_page_says(page: Names, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await page["main"]()
    listed, found, booked = capsys.readouterr().out.splitlines()
    assert (listed, booked) == ("['search_tools', 'call_tool', 'today']", "Booked 2 nights in Lisbon.")
    result = json.loads(found)
    assert ([tool["name"] for tool in result["tools"]], result["total"]) == (["book_room"], 1)
    assert result["tools"][0].keys() == {"name", "description", "inputSchema"}


async def test_other_names_and_numbers_are_possible(page: Names) -> None:
    with trio.fail_after(BOUND):
        async with Client.connect(page["narrow"]) as client:
            assert [tool.name for tool in await client.list_tools()] == ["find_tools", "run_tool"]
            result = (await client.call_tool("find_tools", {"query": "customer"})).check()
    assert "send_invoice" in result.text


def test_the_numbers_are_those_of_the_code() -> None:
    options = ToolSearch()
    assert f"| `results`, `max_results` | {options.results}, {options.max_results} |" in PAGE.text
    assert f"| `max_query` | {options.max_query} | characters of a query, of which the first {MAX_TERMS} " in PAGE.text
    assert f"| `max_result_bytes` | {options.max_result_bytes:,} |" in PAGE.text
    assert f"| `{options.search_name}`, `{options.call_name}` |" in PAGE.text
