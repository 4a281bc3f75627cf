"""The code of docs/tool-loops.md is one program, and does what the page says."""

from __future__ import annotations

import pytest
from pages import Names, Page

from trio_mcp import Client, Server
from trio_mcp.providers import ScriptedProvider
from trio_mcp.server import ToolLoopResult
from trio_mcp.server.sampling.looper import MAX_ITERATIONS
from trio_mcp.session.token_usage import MAX_CALLS
from trio_mcp.testing import MockClient, tool_use

PAGE = Page("tool-loops")

both_eras = pytest.mark.parametrize("era", ["modern", "legacy"])


@pytest.fixture
def page() -> Names:
    return PAGE.run()


@both_eras
async def test_a_dinner_is_what_the_model_says_in_the_end(page: Names, era: str) -> None:
    calls = [tool_use("in_stock", item="eggs"), tool_use("in_stock", item="milk")]
    client = MockClient(samples=[calls, "Fried eggs."], era=era)
    assert (await client.call((page["server"], "dinner"))).text == "Fried eggs."


@both_eras
async def test_a_loop_has_tools_of_two_servers_one_of_which_asks_the_user(page: Names, era: str) -> None:
    calls = [tool_use("taste", dish="soup"), tool_use("find_recipe", dish="soup")]
    client = MockClient(samples=[calls, "More salt."], elicits=["bland"], era=era)
    assert (await client.call((page["server"], "season"), dish="soup")).text == "More salt."


@both_eras
async def test_an_order_ends_the_loop(page: Names, era: str) -> None:
    calls = [tool_use("order", dish="lobster", price=90), tool_use("order", dish="soup", price=8)]
    client = MockClient(samples=[calls], era=era)
    assert (await client.call((page["server"], "order_dinner"))).data == {"dish": "soup", "price": 8}
    nothing = MockClient(samples=["All of it is too expensive."], era=era)
    assert (await nothing.call((page["server"], "order_dinner"))).is_error


@both_eras
async def test_a_restaurant_works_for_a_client_without_a_model(page: Names, era: str) -> None:
    server: Server = page["restaurant"](ScriptedProvider(["Fried eggs."]))
    async with Client.connect(server, mode="legacy" if era == "legacy" else "2026-07-28") as client:
        assert (await client.call_tool("dinner")).text == "Fried eggs."


def test_the_page_names_the_limits_and_members_that_there_are() -> None:
    assert f"`max_iterations={MAX_ITERATIONS}`" in PAGE.text
    assert f"more than {MAX_CALLS} calls" in PAGE.prose
    for member in ToolLoopResult.__dataclass_fields__:
        assert f"`{member}`" in PAGE.text
