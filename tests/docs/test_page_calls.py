"""What the tools of the pages answer: one row a call, in both eras."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from pages import Names, Page, kept

from trio_mcp import Caller, accept, decline
from trio_mcp.testing import MockClient, tool_use
from trio_mcp.types import CallToolResult, CreateMessageRequestParams, ElicitRequestURLParams, ElicitResult

FORECAST = {"place": "Oslo", "degrees": 4, "sky": "rain"}
DISHES = [tool_use("taste", dish="soup"), tool_use("find_recipe", dish="soup")]
ORDERS = [tool_use("order", dish="lobster", price=90), tool_use("order", dish="soup", price=8)]
WRITER = Caller("alice", scopes=["notes:read", "notes:write"])
SALE = '{"product":"bread","euros":3.2}'


class Called(NamedTuple):
    """A call of a tool.

    Args:
        tool: the name of its function on the page, or `server.name`, both of the page.
        answer: a text (the whole one), what `data` is, or a function of the result.
        urls: the function of the page that is called when the user has finished a page in the browser.
    """

    page: str
    tool: str
    arguments: Names
    answer: object
    elicits: Sequence[object] | None = None
    samples: Sequence[object] | Callable[..., object] | None = None
    urls: str | None = None
    caller: Caller | None = None
    reports: Sequence[object] = ()
    logs: Sequence[object] = ()

    def __str__(self) -> str:
        return f"{self.page}-{self.tool}"


def is_error(result: CallToolResult) -> bool:
    return bool(result.is_error)


def has(text: str) -> Callable[[CallToolResult], bool]:
    return lambda result: text in result.text


def starts(text: str) -> Callable[[CallToolResult], bool]:
    return lambda result: not result.is_error and result.text.startswith(text)


def error(text: str) -> Callable[[CallToolResult], bool]:
    return lambda result: bool(result.is_error) and text in result.text


def blocks(*expected: str) -> Callable[[CallToolResult], bool]:
    """The text of the blocks that are text, and the kind of the others."""
    return lambda result: [b.text if b.type == "text" else b.type for b in result.content] == [*expected]


CALLS = [
    Called("asyncio", "shop.price", {"item": "lamp"}, 4),
    Called("asyncio", "shop.buy", {"items": ["lamp", "table"]}, "Bought.", elicits=[accept()]),
    Called("asyncio", "shop.wait", {"seconds": 0}, lambda result: not result.is_error),
    Called("asyncio", "mixed.cheapest", {"items": ["lamp", "table"]}, 4),
    Called("asyncio", "database.version", {}, sqlite3.sqlite_version),
    Called("authorization", "server.write", {"text": "x"}, "written for alice", caller=WRITER),
    Called("cancellation", "server.decorate", {}, "pink", elicits=["pink"]),
    Called("cancellation", "server.bake", {"minutes": 0.05}, "a cake"),
    Called("dev", "server.free_rooms", {"city": "Lisbon"}, 3),
    Called("fastmcp", "borrow", {"number": "1"}, "2 weeks. A comedy.", elicits=[{"weeks": 2}], samples=["A comedy."]),
    Called("fastmcp", "borrow", {"number": "1"}, starts("Nothing"), elicits=[decline()]),
    Called("fastmcp", "borrow", {"number": "7"}, is_error),
    Called("fastmcp", "find_english_book", {"title": "Em"}, ["Emma"]),
    Called("forms", "server.book", {}, "Row 3, aisle.", elicits=[accept(row=3)]),
    Called("forms", "server.book", {}, "Nothing was booked.", elicits=[decline()]),
    Called("forms", "server.check_in", {}, "m, 2 in the hold", elicits=[accept(value="m"), accept(bags=2), accept()]),
    Called("forms", "server.check_in", {}, has("declined"), elicits=[decline()]),
    Called("forms", "server.cancel_flight", {}, "cancelled", elicits=[decline(), accept(value=True)]),
    Called("forms", "server.cancel_flight", {}, "kept", elicits=[decline(), decline()]),
    Called("forms", "server.tic_tac_toe", {}, "x at 0, o at 4", elicits=[accept(cell=0)], samples=["4"]),
    Called("forms", "server.connect", {}, "connected", urls="page_was_finished"),
    Called("howto", "floor_plan", {"level": 1}, blocks("image")),
    Called("howto", "price_list", {}, blocks("resource")),
    Called("howto", "list_products", {}, [{"name": "lamp", "euros": 40.0}]),
    Called("howto", "in_stock", {"name": "sofa"}, False),
    Called("howto", "price", {"name": "sofa"}, error("There is no sofa. Call list_products first.")),
    Called("howto", "count_orders", {}, 0),
    Called("howto", "basket", {}, "The basket of guest is empty."),
    Called("howto", "basket", {}, "The basket of ann is empty.", caller=Caller("ann")),
    Called("howto", "delete_order", {"number": 7}, "Deleted.", elicits=[{}]),
    Called("howto", "describe", {"product": "lamp"}, "Buy it.", samples=["Buy it."]),
    Called(
        "howto", "estimate", {"product": "lamp"}, {"name": "lamp", "euros": 9.0}, samples=[{"name": "lamp", "euros": 9}]
    ),
    Called("howto", "connect_bank", {}, "connected", urls="page_was_finished"),
    Called("howto", "makers", {"names": ["a", "b"]}, ["Acme", "Acme"], samples=lambda _: "Acme"),
    Called("howto", "reindex", {}, "done"),
    Called("howto", "print_label", {}, "printed"),
    Called("howto", "report", {"year": 2026}, "2026 sales, accept", elicits=[True]),
    Called("howto", "convert", {"euros": 2, "currency": "usd"}, 2.2),
    Called("howto", "render", {"scene": "s"}, "s.png"),
    Called("results", "server.chart", {}, blocks("image")),
    Called("results", "server.report", {"folder": "."}, blocks("Sales in July.", "image", "resource")),
    Called("results", "server.summary", {}, blocks(SALE, "image")),
    Called("results", "server.everything", {}, blocks("A chart:", "image")),
    Called("results", "server.mixed", {}, blocks("A chart:", "image", '{"euros":15.7}')),
    Called("results", "server.keyed", {}, blocks('{"euros":15.7}', "image")),
    Called("results", "server.keyed", {}, {"euros": 15.7}),
    Called("results", "server.controlled", {}, blocks('{"euros":15.7}')),
    Called("results", "server.find_sale", {"product": "none"}, None),
    Called("sampling", "server.forecast", {"place": "Oslo"}, FORECAST, samples=["It will rain.", FORECAST]),
    Called("sampling", "server.umbrella", {"place": "Oslo"}, "Take it.", samples=[True]),
    Called("sampling", "server.umbrella", {"place": "Oslo"}, "Leave it.", samples=["No.", False]),
    Called("sampling", "server.umbrella", {"place": "Oslo"}, has("The model did not say"), samples=["No.", "No!"]),
    Called("servers", "bind", {"number": "1"}, "Emma becomes red.", elicits=["red"], reports=["asking"]),
    Called("servers", "server.borrow", {"number": "1"}, "2 weeks", elicits=[accept(weeks="2", remind=False)]),
    Called("servers", "server.borrow", {"number": "9"}, error("There is no book 9.")),
    Called("servers", "server.find", {"title": "Emma"}, '["Emma"]'),
    Called("servers", "server.find", {"title": "Emma", "number": "1"}, is_error),
    Called("servers", "server.shelf", {"number": "1", "branch": "north"}, "Emma in north"),
    Called(
        "servers",
        "server.stocktake",
        {},
        2,
        reports=["Emma", "Persuasion"],
        logs=["counted Emma", "counted Persuasion"],
    ),
    Called("servers", "server.restore", {"number": "1"}, has("library://catalogue")),
    Called(
        "tool-loops", "server.dinner", {}, "Fried eggs.", samples=[[tool_use("in_stock", item="eggs")], "Fried eggs."]
    ),
    Called(
        "tool-loops", "server.season", {"dish": "soup"}, "More salt.", samples=[DISHES, "More salt."], elicits=["bland"]
    ),
    Called("tool-loops", "server.order_dinner", {}, {"dish": "soup", "price": 8}, samples=[ORDERS]),
    Called("tool-loops", "server.order_dinner", {}, is_error, samples=["All of it is too expensive."]),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the pages speak of, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plans").mkdir()
    for picture in (tmp_path / "plans" / "1.png", tmp_path / "chart.png"):
        picture.write_bytes(bytes.fromhex("89504e470d0a1a0a"))
    for table in ("prices.csv", "sales.csv"):
        (tmp_path / table).write_text("lamp;40")


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("called", CALLS, ids=str)
def test_a_tool_of_a_page_answers_as_it_says(called: Called, era: str, folder: None) -> None:
    names = kept(called.page)

    def finish(asked: ElicitRequestURLParams) -> ElicitResult:
        names[called.urls or ""](asked.url.rpartition("=")[2])
        return accept()

    client = MockClient(
        elicits=called.elicits,
        samples=called.samples,
        urls=None if called.urls is None else [finish],
        caller=called.caller,
        era=era,
    )
    server, _, tool = called.tool.rpartition(".")
    target = (names[server], tool) if server else names[tool]
    Page(called.page).play(client.call, target, **called.arguments)
    result = client.result
    assert result is not None
    if callable(called.answer):
        assert called.answer(result), result
    else:
        assert (result.text if isinstance(called.answer, str) else result.data, is_error(result)) == (
            called.answer,
            False,
        )
    assert [report.message for report in client.progress][: len(called.reports)] == [*called.reports]
    assert [said.data for said in client.logs] == [*called.logs]


# what the model of the user was asked


async def asked_for(era: str, tool: str, *samples: object, **arguments: object) -> list[CreateMessageRequestParams]:
    client = MockClient(samples=samples, era=era)
    assert (await client.call((kept("sampling")["server"], tool), **arguments)).text == samples[-1]
    return [asked.params for asked in client.questions]  # type: ignore[misc]


async def test_the_options_and_messages_of_a_sample_reach_the_model(mcp_era: str) -> None:
    (haiku,) = await asked_for(mcp_era, "haiku", "Rain, rain, rain.", place="Oslo")
    assert (haiku.max_tokens, haiku.temperature) == (100, 0.9)
    (compared,) = await asked_for(mcp_era, "compare", "yes")
    assert (compared.system_prompt, len(compared.messages)) == ("Answer yes or no.", 1)
    _, packed = await asked_for(mcp_era, "pack", FORECAST, "A coat.", place="Oslo")
    assert [message.role for message in packed.messages] == ["user", "assistant", "user", "user"]


async def test_the_model_continues_from_the_results_of_its_tools(mcp_era: str) -> None:
    calls = [tool_use("temperature", place="Lisbon"), tool_use("temperature", place="Rome")]
    *_, last = await asked_for(mcp_era, "advise", calls, tool_use("temperature", place="Oslo"), "Lisbon.")
    sent = str([message.wire() for message in last.messages])
    assert [text in sent for text in ("21 degrees", "There is no such place.", "4 degrees")] == [True] * 3
