"""The code of docs/forms.md is one program, and does what the page says."""

from __future__ import annotations

import pytest
import trio
from pages import Names, Page

from trio_mcp import Client, Context, PeerError, accept, decline
from trio_mcp.server import Elicitation, ElicitExchange
from trio_mcp.types import ElicitRequestFormParams, ElicitRequestURLParams, ElicitResult

PAGE = Page("forms")
BOUND = 20.0
both_modes = pytest.mark.parametrize("mode", ["legacy", "modern"])


@pytest.fixture
def page() -> Names:
    return PAGE.run()


async def call(page: Names, mode: str, tool: str, *answers: ElicitResult) -> str:
    """Call a tool and answer its questions in turn."""
    left = list(answers)

    def answer(_: ElicitRequestFormParams) -> ElicitResult:
        return left.pop(0)

    def open_page(asked: ElicitRequestURLParams) -> ElicitResult:
        page["page_was_finished"](asked.url.partition("=")[2])
        return left.pop(0)

    with trio.fail_after(BOUND):
        async with Client.connect(
            page["server"], mode=mode, on_elicit=answer, on_elicit_url=open_page, on_sample=lambda _: "4"
        ) as client:
            text = (await client.call_tool(tool)).text
    assert left == []
    return text


@both_modes
async def test_the_tools_of_the_page(page: Names, mode: str) -> None:
    assert await call(page, mode, "book", accept(row=3)) == "Row 3, aisle."
    assert await call(page, mode, "book", decline()) == "Nothing was booked."
    size, luggage, sure = accept(value="m"), accept(bags=2), accept()
    assert await call(page, mode, "check_in", size, luggage, sure) == "m, 2 in the hold"
    assert "declined" in await call(page, mode, "check_in", decline())
    assert await call(page, mode, "cancel_flight", decline(), accept(value=True)) == "cancelled"
    assert await call(page, mode, "cancel_flight", decline(), decline()) == "kept"
    assert await call(page, mode, "tic_tac_toe", accept(cell=0)) == "x at 0, o at 4"
    assert await call(page, mode, "connect", accept()) == "connected"


async def test_a_page_that_is_required_first(page: Names) -> None:
    with pytest.raises(PeerError) as refused:
        await call(page, "legacy", "agenda")
    assert refused.value.code == -32042
    assert "https://calendar.example.com/connect" in await call(page, "modern", "agenda")


def test_the_page_names_what_elicit_and_an_exchange_can_do() -> None:
    methods = [name for name in vars(Elicitation) if not name.startswith("_")]
    members = [name for name in dir(ElicitExchange) if not name.startswith("_") and name != "arguments"]
    assert [name for name in methods if f"ctx.elicit.{name}" not in PAGE.text] == []
    assert [name for name in members if f"`{name}" not in PAGE.text] == []
    assert "ctx.elicit_url" in PAGE.text
    assert hasattr(Context, "elicit_url")
