"""The code of docs/cancellation.md is one program, and does what the page says."""

from __future__ import annotations

import pytest
import trio
from naming import unnamed
from pages import Names, Page
from talk import ERAS, EVERYTHING, Legacy, accept, talk_to
from trio.testing import MockClock

PAGE = Page("cancellation")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


@pytest.mark.parametrize("era", ERAS, ids=lambda era: era.era)
async def test_the_tools_do_what_the_page_says(page: Names, era: type[Legacy], autojump_clock: MockClock) -> None:
    async with talk_to(page["server"]) as talk:
        player = era(talk, EVERYTHING)
        await player.call("decorate")
        await player.question()
        await player.answer(accept(value="pink"))
        assert await player.text() == "pink"
        await player.call("bake", {"minutes": 0.05})
        assert await player.text() == "a cake"


async def test_an_oven_is_switched_off_when_its_time_is_up(
    page: Names, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    page["server"].remove_tool("bake")
    page["server"].add_tool(page["bake"], timeout=2)
    async with talk_to(page["server"]) as talk:
        failure = await talk.failure(talk.leg("bake", {"minutes": 60}))
    assert unnamed(failure, "bake", "2 seconds") == []
    assert capsys.readouterr().out == "oven off: deadline\n"


async def test_the_main_program_prints_what_the_page_lets_expect(
    page: Names, capsys: pytest.CaptureFixture[str]
) -> None:
    with trio.fail_after(BOUND):
        await page["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert any(unnamed(line, "bake", "0.2 seconds") == [] for line in lines)
    assert "oven off: client" in lines
    assert "0 questions are open; 0 answers came late" in lines
