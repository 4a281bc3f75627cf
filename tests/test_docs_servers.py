"""The code of docs/servers.md is one program, and does what the page says."""

from __future__ import annotations

import re
from typing import Any

import pytest
import trio
from serving import ROOT
from talk import Talk, talk_to

from trio_mcp.server.completion import MAX_VALUES

PAGE = (ROOT / "docs" / "servers.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BOUND = 20.0

Names = dict[str, Any]


@pytest.fixture
def page() -> Names:
    """What the code of the page defines, when it is run from top to bottom."""
    names: Names = {"__name__": "servers_page"}
    for block in BLOCKS:
        exec(block, names)
    return names


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
        "Recommend a funny book for my aunt.",
    ]


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"The first {MAX_VALUES} suggestions" in PAGE
