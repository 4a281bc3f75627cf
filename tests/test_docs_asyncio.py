"""The code of docs/asyncio.md is one program, and does what the page says."""

from __future__ import annotations

import asyncio
import sqlite3
import tomllib

import pytest
import trio
from pages import Names, Page
from serving import ROOT

from trio_mcp import Client, accept
from trio_mcp.session.event_loop import ASYNCIO_ERRORS, PAGE as ADVICE

PAGE = Page("asyncio")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BOUND = 20.0
ABANDONED = "Trio cannot start in this thread again"


def test_the_advice_for_asyncio_leads_to_this_page_without_a_clone() -> None:
    folder = PROJECT["urls"]["Documentation"].removesuffix("index.md")
    assert f"{folder}{PAGE.name}.md" == ADVICE


@pytest.fixture
def page() -> Names:
    return PAGE.run()


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_tools_await_asyncio(page: Names, mode: str) -> None:
    with trio.fail_after(BOUND):
        async with Client.connect(page["shop"], mode=mode, on_elicit=lambda asked: accept()) as client:
            assert (await client.call_tool("price", {"item": "lamp"})).data == 4
            assert (await client.call_tool("buy", {"items": ["lamp", "table"]})).text == "Bought."
            assert not (await client.call_tool("wait", {"seconds": 0})).is_error
        async with Client.connect(page["mixed"], mode=mode) as client:
            assert (await client.call_tool("cheapest", {"items": ["lamp", "table"]})).data == 4
        async with Client.connect(page["database"], mode=mode) as client:
            assert (await client.call_tool("version")).text == sqlite3.sqlite_version


def test_an_asyncio_program_awaits_a_client(page: Names) -> None:
    assert asyncio.run(page["ask_prices"](["lamp", "table"])) == ["4", "5"]


def test_code_without_async_blocks_for_its_results(page: Names) -> None:
    assert page["price_of"]("lamp") == "4"


def test_the_errors_of_the_page_are_those_of_the_code() -> None:
    assert [text for _, text in ASYNCIO_ERRORS if text not in PAGE.prose] == ["no current event loop"]

    for error in ("was opened in another event loop", "server.run() starts Trio, and would block asyncio", ABANDONED):
        assert error in PAGE.prose
