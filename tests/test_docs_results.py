"""The code of docs/results.md is one program, and does what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from pages import Names, Page

from trio_mcp import Client
from trio_mcp.server.values.media import MAX_FILE
from trio_mcp.server.values.schemas import MAX_INLINED
from trio_mcp.session import ServiceOptions
from trio_mcp.types import CallToolResult

PAGE = Page("results")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


def shown(result: CallToolResult) -> list[str]:
    """The text of the blocks that are text, and the kind of the others."""
    return [block.text if block.type == "text" else block.type for block in result.content]


@pytest.mark.parametrize("mode", ["modern", "legacy"])
async def test_each_tool_returns_what_the_page_says(page: Names, mode: str, tmp_path: Path) -> None:
    (tmp_path / "chart.png").write_bytes(page["PNG"])
    (tmp_path / "sales.csv").write_text("bread;3.2")
    sale = '{"product":"bread","euros":3.2}'
    with trio.fail_after(BOUND):
        async with Client.connect(page["server"], mode=mode) as client:
            await client.list_tools()
            assert shown(await client.call_tool("chart")) == ["image"]
            assert shown(await client.call_tool("report", {"folder": str(tmp_path)})) == [
                "Sales in July.",
                "image",
                "resource",
            ]
            assert shown(await client.call_tool("summary")) == [sale, "image"]
            assert shown(await client.call_tool("everything")) == ["A chart:", "image"]
            assert shown(await client.call_tool("mixed")) == ["A chart:", "image", '{"euros":15.7}']
            keyed = await client.call_tool("keyed")
            assert (shown(keyed), keyed.data) == (['{"euros":15.7}', "image"], {"euros": 15.7})
            assert shown(await client.call_tool("controlled")) == ['{"euros":15.7}']
            assert (await client.call_tool("find_sale", {"product": "none"})).data is None


async def test_the_main_program_prints_the_values(page: Names, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await page["main"]()
    whole = await page["export"]()
    assert capsys.readouterr().out.splitlines() == ["2 2 {'result': 2} False", "wine", f"True {len(whole)}"]


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"A file may have {MAX_FILE // 1024**2} MiB" in PAGE.prose
    assert f"more than {MAX_INLINED // 1024} KiB" in PAGE.prose
    assert f"({ServiceOptions().result_ttl:g} by default)" in PAGE.prose
