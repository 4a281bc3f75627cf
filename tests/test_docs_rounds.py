"""The code of docs/rounds.md does what the page says, and its numbers are those of the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from pages import Names, Page
from talk import accept as answer, talk_to

from trio_mcp import Client, Server, ServiceOptions, accept
from trio_mcp.client import MAX_ROUNDS
from trio_mcp.protocol.sealing.request_state import MAX_STATE, KeyRing
from trio_mcp.runtime import Limits

PAGE = Page("rounds")
BOUND = 20.0

both_eras = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


async def call(server: Server, mode: str, tool: str, arguments: Names) -> Any:
    with trio.fail_after(BOUND):
        async with Client.connect(server, mode=mode, on_elicit=lambda _: accept(value=True)) as client:
            return await client.call_tool(tool, arguments, max_rounds=1)


@both_eras
async def test_a_payment_is_asked_for_and_made_once(mode: str) -> None:
    names = PAGE.run()
    assert (await call(names["server"], mode, "pay", {"amount": 5})).text == "Charged 5 euros."
    assert names["ledger"] == ["reserved 5", "charged 5"]


@both_eras
async def test_a_survey_takes_one_round(mode: str) -> None:
    result = await call(PAGE.run()["server"], mode, "survey", {"people": ["Ann", "Bob", "Cleo"]})
    assert result.structured_content == {"result": 3}


async def test_an_order_survives_a_replay_of_every_leg() -> None:
    names = PAGE.run()
    with trio.fail_after(BOUND):
        await names["check_order"]()
    assert names["ledger"] == ["charged 5"]


async def test_the_main_program_runs() -> None:
    with trio.fail_after(BOUND):
        await PAGE.run()["main"]()


@pytest.mark.parametrize("policy", ["parked", "replay"])
async def test_what_becomes_of_a_call_whose_process_is_gone(policy: str) -> None:
    """The page's own tools, under keys that two services share."""
    names = PAGE.run()
    tool, done = {"parked": ("pay", ["reserved 5"]), "replay": ("order", ["charged 5"])}[policy]
    server = names["server"].copy(options=ServiceOptions(keys=KeyRing.random()))
    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg(tool, {"amount": 5}))
    async with talk_to(server) as talk:
        retry = {"state": asked.state, "answers": {asked.key: answer(value=True)}}
        result = await talk.result(talk.leg(tool, {"amount": 5}, **retry))
    assert bool(result.get("isError")) is (policy == "parked")
    assert names["ledger"] == done


async def test_the_store_of_the_page_keeps_what_is_too_large_to_travel(tmp_path: Path) -> None:
    names = PAGE.run()
    store = names["Folder"](str(tmp_path))
    server = names["server"].copy(options=ServiceOptions(keys=KeyRing.random(), max_state=1, store=store))
    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg("order", {"amount": 5}))
    async with talk_to(server) as talk:
        retry = {"state": asked.state, "answers": {asked.key: answer(value=True)}}
        assert await talk.text(talk.leg("order", {"amount": 5}, **retry)) == "receipt 1, accept"
    assert names["ledger"] == ["charged 5"]
    assert await store.get("unheard of") is None


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    options, actors = ServiceOptions(), Limits()
    for said in (
        f"for {options.settle} seconds at most",
        f"for {options.outcome_grace:g} seconds after the call is over",
        f"| {actors.park_ttl:g} seconds |",
        f"| {actors.parked:,}; over half of them, [a quarter of one caller](limits.md#what-callers-share) |",
        f"| {options.max_state // 1024} KiB |",
        f"| {MAX_STATE // 1024} KiB |",
        f"give up after {MAX_ROUNDS} rounds",
    ):
        assert said in PAGE.prose
