"""The code of docs/handoff.md is one program, and does what the page says."""

from __future__ import annotations

import pytest
import trio
from pages import Names, Page
from talk import DECLINE, ERAS, EVERYTHING, Json, Legacy, accept, talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import ServiceOptions
from trio_mcp.server import ToolBuilder

PAGE = Page("handoff")
BOUND = 20.0

both_eras = pytest.mark.parametrize("era", ERAS, ids=lambda era: era.era)


@pytest.fixture
def page() -> Names:
    return PAGE.run()


@both_eras
@pytest.mark.parametrize(
    ("answer", "said", "done"),
    [
        (accept(value=True), "Booked room 7 in Oslo.", "booked 7"),
        (accept(value=False), "Nothing was booked.", "released 7"),
        (DECLINE, "Nothing was booked.", "released 7"),
    ],
)
async def test_a_room_is_held_asked_for_and_booked(
    page: Names, era: type[Legacy], answer: Json, said: str, done: str
) -> None:
    async with talk_to(page["server"]) as talk:
        player = era(talk, EVERYTHING)
        await player.call("book_room", {"city": "Oslo"})
        assert (await player.question())["message"] == "Room 7 in Oslo is free. Take it?"
        await player.answer(answer)
        assert await player.text() == said
    assert page["front_desk"] == ["held 7", done]


async def test_a_call_that_is_cancelled_releases_its_room(page: Names) -> None:
    async with talk_to(page["server"]) as talk:
        player = Legacy(talk, EVERYTHING)
        call = await player.call("book_room", {"city": "Oslo"})
        await player.question()
        talk.cancel(call)
        await wait_all_tasks_blocked()
        assert page["front_desk"] == ["held 7", "released 7"]


@both_eras
async def test_the_built_tool_does_the_same_and_knows_its_parameters(page: Names, era: type[Legacy]) -> None:
    async with talk_to(page["server"]) as talk:
        player = era(talk, EVERYTHING)
        await player.call("book_stay", {"city": "Oslo", "nights": 3})
        await player.question()
        await player.answer(accept(value=True))
        assert await player.text() == "Booked room 8 in Oslo. Nights: 3."


async def test_a_tool_of_one_server_is_called_at_another(page: Names) -> None:
    async with talk_to(page["archive"]) as talk:
        result = await talk.result(talk.leg("audit", {"city": "Oslo"}))
        assert result["structuredContent"] == {"result": 0}
        (listed,) = (await talk.result(talk.ask("tools/list")))["tools"]
        assert listed["_meta"] == {"example.com/audited": True}


async def test_the_checks_of_the_page_pass(page: Names) -> None:
    with trio.fail_after(BOUND):
        await page["check_book_room"]()
        await page["check_answers"]()


def test_the_page_names_every_step_of_the_builder() -> None:
    steps = [name for name in vars(ToolBuilder) if not name.startswith("_")]
    assert [step for step in steps if f"`.{step}(" not in PAGE.text] == []


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    assert f"`ServiceOptions.cancel_grace` ({ServiceOptions().cancel_grace:g} seconds)" in PAGE.prose
