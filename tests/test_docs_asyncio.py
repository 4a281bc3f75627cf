"""The code of docs/asyncio.md is one program, and does what the page says."""

from __future__ import annotations

import asyncio
import tomllib

import pytest
import trio
from pages import Names, Page
from serving import ROOT

from trio_mcp import Client, Server
from trio_mcp.session.event_loop import ASYNCIO_ERRORS, PAGE as ADVICE

PAGE = Page("asyncio")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BOUND = 20.0


def test_the_advice_for_asyncio_leads_to_this_page_without_a_clone() -> None:
    folder = PROJECT["urls"]["Documentation"].removesuffix("index.md")
    assert f"{folder}{PAGE.name}.md" == ADVICE


@pytest.fixture
def page() -> Names:
    return PAGE.run()


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_asyncio_code_runs_in_threads_of_tools(page: Names, mode: str) -> None:
    reports = list[float]()
    with trio.fail_after(BOUND):
        async with Client.connect(page["server"], mode=mode) as client:
            assert "4" in (await client.call_tool("price", {"item": "lamp"})).text
            items = {"items": ["lamp", "table"]}
            result = await client.call_tool("total", items, on_progress=lambda report: reports.append(report.progress))
            assert "9" in result.text
    assert reports == [1, 2]


def test_an_asyncio_program_runs_trio_in_a_thread(page: Names) -> None:
    assert "4" in asyncio.run(page["asyncio_main"]())


def test_an_asyncio_program_runs_trio_as_its_guest(page: Names) -> None:
    assert "5" in asyncio.run(page["guest_main"]())


def test_a_cancel_of_the_asyncio_task_cancels_the_guest(page: Names) -> None:
    ended = list[str]()

    async def forever() -> None:
        started.set()
        try:
            await trio.sleep_forever()
        finally:
            ended.append("trio")

    async def main() -> None:
        task = asyncio.create_task(page["run_trio"](forever))
        await asyncio.wait_for(started.wait(), BOUND)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = asyncio.Event()
    asyncio.run(main())
    assert ended == ["trio"]


def test_the_errors_of_the_page_are_those_of_the_code() -> None:
    assert [text for _, text in ASYNCIO_ERRORS if text not in PAGE.prose] == ["no current event loop"]

    async def serve() -> None:
        await Server("mixed").serve()

    with pytest.raises(RuntimeError) as caught:
        asyncio.run(serve())
    assert "trio_mcp runs on Trio, not on asyncio" in PAGE.prose
    assert "trio_mcp runs on Trio, not on asyncio" in str(caught.value)
