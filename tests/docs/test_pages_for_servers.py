"""What the code of the pages for authors of servers does, where that is more than a call and its answer."""

from __future__ import annotations

import base64
import json
import re
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from connected import connected
from constants import code
from naming import unnamed
from pages import Names, Page, run
from talk import DECLINE, ERAS, EVERYTHING, Json, Legacy, accept as answer, talk_to
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Client, PeerError, Server, ServiceOptions, accept
from trio_mcp.providers import ScriptedProvider
from trio_mcp.session import KeyRing, ServiceTree
from trio_mcp.testing import MockClient, tool_use
from trio_mcp.testing.contract import all_store_rules
from trio_mcp.types import CallToolResult, CreateMessageRequestParams, PromptReference

BOUND = 200.0

both_eras = pytest.mark.parametrize("era", ERAS, ids=lambda era: era.era)


# servers.md, results.md, howto.md


async def test_what_is_offered_is_what_the_page_says() -> None:
    async with talk_to(run("servers")["server"]) as talk:
        for uri, text in (("catalogue", '{"1":"Emma","2":"Persuasion"}'), ("books/2", "Persuasion")):
            read = await talk.result(talk.ask("resources/read", uri=f"library://{uri}"))
            assert read["contents"][0]["text"] == text
        missing = await talk.error(talk.ask("resources/read", uri="library://books/9"))
        assert (missing["code"], missing["data"]) == (-32602, {"uri": "library://books/9"})
        listed = await talk.result(talk.ask("prompts/list"))
        assert (listed["ttlMs"], listed["cacheScope"]) == (60_000, "public")
        ref = {"type": "ref/prompt", "name": "recommend"}
        asked = talk.ask("completion/complete", ref=ref, argument={"name": "taste", "value": "d"})
        assert (await talk.result(asked))["completion"]["values"] == ["dark", "dreamy"]


async def test_recipes_for_data_prompts_and_composition(tmp_path: Path, mcp_era: str) -> None:
    names, local = run("howto"), Server("office")
    async with Client.connect(names["server"], mode=mcp_era) as client:
        assert (await client.read_resource("orders://7")).text == '{"number":7}'
        assert "lamp" in str((await client.get_prompt("review", {"product": "lamp"})).messages[0].content)
        assert (await client.complete(PromptReference(name="review"), "product", "l")).values == ["lamp"]
        hints = {tool.name: tool.annotations for tool in await client.list_tools()}["in_stock"]
        assert hints is not None
        assert hints.read_only_hint
    user = MockClient(roots=[tmp_path], era=mcp_era)
    assert (await user.call(names["list_folders"])).data == [str(tmp_path)]
    local.mount("shop", names["server"])
    for server, tool in ((names["stock"], "get_stock"), (local, "shop_order")):
        async with Client.connect(server, mode=mcp_era) as client:
            assert tool in [each.name for each in await client.list_tools()]


async def test_recipes_of_clients(mcp_era: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = run("howto")
    assert await names["buy"](names["server"]) == 40.0
    assert await names["buy_for_user"](names["server"]) == "Sent to Lisbon."
    provider = ScriptedProvider([tool_use("price", name="lamp"), "It costs 40 euros."])
    async with Client.connect(names["server"], mode=mcp_era) as client:
        assert await names["shop_for_me"](provider, client) == "It costs 40 euros."
    await MockClient(principal="ann").call(names["basket"])
    assert "ann calls basket" in capsys.readouterr().out
    reports = MockClient()
    await reports.call(names["reindex"])
    assert reports.progress[-1].progress == 100


# forms.md, tool-loops.md, tool-search.md


async def test_a_page_that_is_required_first() -> None:
    async def agenda(mode: str) -> str:
        async with connected(run("forms")["server"], mode=mode, on_elicit_url=lambda _: accept()) as client:
            return (await client.call_tool("agenda")).text

    with pytest.raises(PeerError) as refused:
        await agenda("legacy")
    assert refused.value.code == -32042
    assert "https://calendar.example.com/connect" in await agenda("modern")


async def test_a_restaurant_works_for_a_client_without_a_model(mcp_era: str) -> None:
    server: Server = run("tool-loops")["restaurant"](ScriptedProvider(["Fried eggs."]))
    async with Client.connect(server, mode=mcp_era) as client:
        assert (await client.call_tool("dinner")).text == "Fried eggs."


async def test_other_names_and_numbers_of_a_search_are_possible() -> None:
    async with connected(run("tool-search")["narrow"]) as client:
        assert [tool.name for tool in await client.list_tools()] == ["find_tools", "run_tool"]
        assert "send_invoice" in (await client.call_tool("find_tools", {"query": "customer"})).check().text


# handoff.md


@both_eras
@pytest.mark.parametrize(
    ("said", "text", "done"),
    [
        (answer(value=True), "Booked room 7 in Oslo.", "booked 7"),
        (answer(value=False), "Nothing was booked.", "released 7"),
        (DECLINE, "Nothing was booked.", "released 7"),
    ],
)
async def test_a_room_is_held_asked_for_and_booked_or_released(
    era: type[Legacy], said: Json, text: str, done: str
) -> None:
    names = run("handoff")
    async with talk_to(names["server"]) as talk:
        player = era(talk, EVERYTHING)
        await player.call("book_room", {"city": "Oslo"})
        assert (await player.question())["message"] == "Room 7 in Oslo is free. Take it?"
        await player.answer(said)
        assert await player.text() == text
    assert names["front_desk"] == ["held 7", done]


async def test_a_call_that_is_cancelled_releases_its_room() -> None:
    names = run("handoff")
    async with talk_to(names["server"]) as talk:
        player = Legacy(talk, EVERYTHING)
        call = await player.call("book_room", {"city": "Oslo"})
        await player.question()
        talk.cancel(call)
        await wait_all_tasks_blocked()
        assert names["front_desk"] == ["held 7", "released 7"]


@both_eras
async def test_the_built_tool_does_the_same_and_knows_its_parameters(era: type[Legacy]) -> None:
    async with talk_to(run("handoff")["server"]) as talk:
        player = era(talk, EVERYTHING)
        await player.call("book_stay", {"city": "Oslo", "nights": 3})
        await player.question()
        await player.answer(answer(value=True))
        assert await player.text() == "Booked room 8 in Oslo. Nights: 3."


async def test_a_tool_of_one_server_is_called_at_another() -> None:
    async with talk_to(run("handoff")["archive"]) as talk:
        assert (await talk.result(talk.leg("audit", {"city": "Oslo"})))["structuredContent"] == {"result": 0}
        (listed,) = (await talk.result(talk.ask("tools/list")))["tools"]
        assert listed["_meta"] == {"example.com/audited": True}


# branches.md


class Model:
    """Answers every prompt with its last word, after some seconds, and keeps what it was asked."""

    def __init__(self, seconds: float = 0) -> None:
        self.asked: list[CreateMessageRequestParams] = []
        self._seconds = seconds

    async def __call__(self, params: CreateMessageRequestParams) -> str:
        self.asked.append(params)
        await trio.sleep(self._seconds)
        return str(params.messages[-1].content.text).split()[-1]  # type: ignore[union-attr]


async def branched(mode: str, tool: str, model: Model, **arguments: str) -> CallToolResult:
    """Call a tool of the page; the user answers after five seconds."""

    async def late(_question: object) -> Any:
        await trio.sleep(5)
        return accept(value=True)

    async with connected(run("branches")["server"], mode=mode, on_sample=model, on_elicit=late) as client:
        return await client.call_tool(tool, arguments)


async def test_a_review_looks_from_three_sides_and_sums_up(mcp_era: str) -> None:
    model = Model()
    assert (await branched(mcp_era, "review", model, text="a poem")).text == "poem"
    assert [len(params.messages) for params in model.asked] == [1] * 4


async def test_the_lawyers_begin_with_what_was_said_and_do_not_hear_each_other(
    mcp_era: str, autojump_clock: MockClock
) -> None:
    model = Model()
    result = await branched(mcp_era, "argue", model, thesis="sun")
    assert result.structured_content == {"result": ["2 messages", "right?"]}
    pleas = [params for params in model.asked if params.system_prompt is not None]
    assert sorted(len(params.messages) for params in pleas) == [3, 3, 5, 5]
    assert {params.system_prompt for params in pleas} == {"You are for the thesis.", "You are against the thesis."}
    assert len(model.asked[-1].messages) == 2


@pytest.mark.parametrize(
    ("seconds", "text", "said"),
    [(0, "text here", "here"), (11, "text here", "2 words (time)"), (0, "word " * 1000, "1000 words (tokens)")],
)
async def test_an_opinion_is_given_within_its_time_and_its_tokens(
    mcp_era: str, seconds: float, text: str, said: str, autojump_clock: MockClock
) -> None:
    assert (await branched(mcp_era, "opinion", Model(seconds), text=text.strip())).text == said


@pytest.mark.parametrize(("seconds", "first"), [(0, "Sampled"), (10, "Accepted")])
async def test_the_first_word_decides(seconds: float, first: str, autojump_clock: MockClock) -> None:
    assert (await branched("legacy", "approve", Model(seconds), change="it")).text == first


# cancellation.md


async def test_an_oven_is_switched_off_when_its_time_is_up(
    autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    names = run("cancellation")
    names["server"].remove_tool("bake")
    names["server"].add_tool(names["bake"], timeout=2)
    async with talk_to(names["server"]) as talk:
        assert unnamed(await talk.failure(talk.leg("bake", {"minutes": 60})), "bake", "2 seconds") == []
    assert capsys.readouterr().out == "oven off: deadline\n"


# rounds.md


@pytest.mark.parametrize(
    ("tool", "arguments", "answered", "ledger"),
    [
        ("pay", {"amount": 5}, "Charged 5 euros.", ["reserved 5", "charged 5"]),
        ("survey", {"people": ["Ann", "Bob", "Cleo"]}, {"result": 3}, []),
    ],
)
async def test_a_tool_asks_in_one_round_and_acts_once(
    mcp_era: str, tool: str, arguments: Names, answered: object, ledger: list[str]
) -> None:
    names = run("rounds")
    async with connected(names["server"], mode=mcp_era, on_elicit=lambda _: accept(value=True)) as client:
        result = await client.call_tool(tool, arguments, max_rounds=1)
    assert answered in (result.text, result.structured_content)
    assert names["ledger"] == ledger


async def test_an_order_survives_a_replay_of_every_leg() -> None:
    names = run("rounds")
    with trio.fail_after(BOUND):
        await names["check_order"]()
    assert names["ledger"] == ["charged 5"]


@pytest.mark.parametrize(
    ("tool", "stored", "done"),
    [("pay", False, ["reserved 5"]), ("order", False, ["charged 5"]), ("order", True, ["charged 5"])],
    ids=["parked", "replay", "stored"],
)
async def test_what_becomes_of_a_call_whose_process_is_gone(
    tool: str, stored: bool, done: list[str], tmp_path: Path
) -> None:
    """The page's own tools, under keys that two services share; a call that waits is lost, one that is replayed goes on."""
    names, store = run("rounds"), None
    options = partial(ServiceOptions, keys=KeyRing.random())
    if stored:
        # Its state is too large to travel.
        store = names["Folder"](str(tmp_path))
        options = partial(options, max_state=1, store=store)
        assert await store.get("unheard of") is None
    server = names["server"].copy(options=options())
    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg(tool, {"amount": 5}))
    async with talk_to(server) as talk:
        retry = {"state": asked.state, "answers": {asked.key: answer(value=True)}}
        result = await talk.result(talk.leg(tool, {"amount": 5}, **retry))
    assert bool(result.get("isError")) is (tool == "pay")
    assert tool == "pay" or result["content"][0]["text"] == "receipt 1, accept"
    assert names["ledger"] == done


def test_the_command_of_the_page_makes_a_key() -> None:
    assert code.stores.MAKE_A_KEY in Page("deployment").text
    found = re.search(r'python -c "(.*)"', code.stores.MAKE_A_KEY)
    assert found is not None
    said: list[str] = []
    exec(found[1], {"print": said.append})
    KeyRing.parse(said[0])


# stores.md


async def test_the_server_of_the_page_keeps_its_state_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIO_MCP_KEYS", base64.urlsafe_b64encode(bytes(range(32))).decode())
    service: AbstractAsyncContextManager[Any] = run("stores")["server"].open_service()
    async with service:
        assert (tmp_path / "state.db").exists()


def test_the_test_of_the_page_has_every_rule_that_needs_nothing_else() -> None:
    cases = next(mark.args[1] for mark in run("stores")["test_contract"].pytestmark)
    assert len(cases) == len([rule for rule in all_store_rules() if not rule.needs])


# observing.md


@both_eras
async def test_the_branches_are_shown_as_on_the_page(era: type[Legacy]) -> None:
    names = run("observing")
    async with talk_to(names["server"], principal="alice") as talk:
        await era(talk, EVERYTHING).call("plan_trip", {"city": "Lisbon"})
        await wait_all_tasks_blocked()
        shown = str(talk.service.tree())
    for line in (
        "branch 1 find_flights: waits for the model (sample)",
        "branch 2 choose_hotel: waits for the user (elicit)",
    ):
        assert line in shown
        assert line in Page("observing").text
    assert "principal alice" in shown
    assert "Lisbon" not in shown
    empty = ServiceTree("travel", "1.0", 0, 0, 0, 0, (), 9900)
    assert str(empty).splitlines()[-1].removeprefix("└─ ") in Page("observing").text


async def test_the_metrics_are_numbers() -> None:
    names = run("observing")
    async with talk_to(names["server"]) as talk:
        await Legacy(talk, EVERYTHING).call("plan_trip", {"city": "Lisbon"})
        await wait_all_tasks_blocked()
        metrics = names["metrics"]("travel")
    assert (metrics["travel_running"], metrics["travel_parked"], metrics["travel_open_questions"]) == (1, 0, 2)
    assert json.loads(json.dumps(metrics)) == metrics
