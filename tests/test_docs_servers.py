"""The code of docs/servers.md is one program, and does what the page says."""

from __future__ import annotations

import pytest
import trio
from pages import Names, Page
from talk import Talk, talk_to

from trio_mcp import Client, Context, accept
from trio_mcp.server.data.completion import MAX_VALUES
from trio_mcp.testing import MockClient

PAGE = Page("servers")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


async def read(talk: Talk, uri: str) -> str:
    return (await talk.result(talk.ask("resources/read", uri=uri)))["contents"][0]["text"]


async def test_what_is_offered_is_what_the_page_says(page: Names) -> None:
    async with talk_to(page["server"]) as talk:
        assert await read(talk, "library://catalogue") == '{"1":"Emma","2":"Persuasion"}'
        assert await read(talk, "library://books/2") == "Persuasion"
        missing = await talk.error(talk.ask("resources/read", uri="library://books/9"))
        assert (missing["code"], missing["data"]) == (-32602, {"uri": "library://books/9"})
        listed = await talk.result(talk.ask("prompts/list"))
        assert (listed["ttlMs"], listed["cacheScope"]) == (60_000, "public")
        ref = {"type": "ref/prompt", "name": "recommend"}
        asked = talk.ask("completion/complete", ref=ref, argument={"name": "taste", "value": "d"})
        assert (await talk.result(asked))["completion"]["values"] == ["dark", "dreamy"]


async def test_the_main_program_prints_the_changes_and_the_prompt(
    page: Names, capsys: pytest.CaptureFixture[str]
) -> None:
    with trio.fail_after(BOUND):
        await page["main"]()
    assert capsys.readouterr().out.splitlines() == [
        "updated library://catalogue",
        "tools None",
        "user Recommend a funny book for my aunt.",
    ]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_the_plain_function_asks_and_reports(page: Names, era: str) -> None:
    client = MockClient(elicits=["red"], era=era)
    assert (await client.call(page["bind"], number="1")).text == "Emma becomes red."
    assert [report.message for report in client.progress] == ["asking"]


async def test_a_context_tells_how_far_it_is(page: Names) -> None:
    logged: list[tuple[str, str | None, object]] = []
    reported: list[tuple[float, float | None, str | None]] = []
    with trio.fail_after(BOUND):
        async with Client.connect(
            page["server"], on_log=lambda said: logged.append((said.level, said.logger, said.data))
        ) as client:
            result = await client.call_tool(
                "stocktake", on_progress=lambda far: reported.append((far.progress, far.total, far.message))
            )
    assert result.structured_content == {"result": 2}
    assert logged == [("info", "stock", "counted Emma"), ("info", "stock", "counted Persuasion")]
    assert reported == [(1, 2, "Emma"), (2, 2, "Persuasion")]


async def test_the_tools_do_what_the_page_says(page: Names) -> None:
    def lend(question: object) -> object:
        return accept(weeks="2", remind=False)

    with trio.fail_after(BOUND):
        async with Client.connect(page["server"], on_elicit=lend) as client:
            assert (await client.call_tool("borrow", {"number": "1"})).text == "2 weeks"
            assert (await client.call_tool("borrow", {"number": "9"})).text == "There is no book 9."
            assert (await client.call_tool("find", {"title": "Emma"})).structured_content == ["Emma"]
            assert (await client.call_tool("find", {"title": "Emma", "number": "1"})).is_error
            await client.list_tools()
            shelf = await client.call_tool("shelf", {"number": "1", "branch": "north"})
    assert shelf.text == "Emma in north"


def test_the_page_lists_everything_that_a_context_can_do() -> None:
    public = [name for name in vars(Context) if not name.startswith("_")]
    assert [name for name in public if f"ctx.{name}" not in PAGE.text] == []


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"The first {MAX_VALUES} suggestions" in PAGE.prose


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_a_tool_reports_and_reads_a_resource(page: Names, mode: str) -> None:
    reports = list[float]()
    with trio.fail_after(BOUND):
        async with Client.connect(page["server"], mode=mode) as client:
            result = await client.call_tool(
                "restore", {"number": "1"}, on_progress=lambda report: reports.append(report.progress)
            )
    assert "library://catalogue" in result.text
    assert reports == [0, 1, 2]
