"""When the parked actor is not there: a call runs again in another process, or is honestly lost."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import trio
from naming import naming
from pages import Page
from talk import Round, Talk, talk_to
from wire_terms import INVALID_PARAMS

from trio_mcp import CancelReason, Client, accept_defaults
from trio_mcp.errors import ConfigurationError, InvalidRequestState, StepMayHaveRun
from trio_mcp.server import Accepted, Context, Server
from trio_mcp.session import KeyRing, ResumeMode, ServiceOptions
from trio_mcp.session.calls.memory import StatePayload
from trio_mcp.session.calls.previous_run import RESTARTED, UNREADABLE
from trio_mcp.types import ToolAnnotations

STATE_ERROR = {"code": INVALID_PARAMS, "message": InvalidRequestState.TEXT}
KEYS = KeyRing.random()


@dataclass(frozen=True)
class Flight:
    number: str
    seats: list[int]


class MemoryJournals:
    """A store that two servers share."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        await trio.lowlevel.checkpoint()
        self.kept[key] = value

    async def get(self, key: str) -> bytes | None:
        await trio.lowlevel.checkpoint()
        return self.kept.get(key)


class Shop:
    """One process of a server: each has separate effects, and they share nothing but the keys."""

    def __init__(self, effects: list[str], **options: Any) -> None:
        self.effects = effects
        self.question = "Sure?"
        self.server = Server("shop", options=ServiceOptions(**{"keys": KEYS, **options}))
        self.server.tool(resume="replay")(self.book)
        self.server.tool(resume="replay")(self.loud)
        self.server.tool(resume="replay")(self.big)
        self.server.tool(self.charge)
        self.server.tool(annotations=ToolAnnotations(idempotent_hint=True))(self.idempotent)
        self.server.tool(annotations=ToolAnnotations(destructive_hint=True))(self.destructive)

    def search(self, to: str) -> Flight:
        self.effects.append(f"searched {to}")
        return Flight("TP1", [1, 2])

    async def book(self, ctx: Context, to: str = "Lisbon") -> str:
        flight = await ctx.step("search", self.search, to)
        seat = await ctx.elicit(f"Seat {flight.seats} on {flight.number}?", int)
        assert isinstance(seat, Accepted)
        sure = await ctx.elicit(self.question, bool)
        assert isinstance(sure, Accepted)
        self.effects.append("booked")
        return f"{flight.number} {seat.content} {sure.content}"

    async def loud(self, ctx: Context) -> str:
        await ctx.progress(1, 3)
        await ctx.elicit("One?", bool)
        await ctx.progress(2, 3)
        await ctx.elicit("Two?", bool)
        await ctx.progress(3, 3)
        return "done"

    async def big(self, ctx: Context) -> int:
        text = await ctx.step("big", lambda: "x" * 1000)
        await ctx.elicit("Go on?", bool)
        return len(text)

    async def charge(self, ctx: Context) -> str:
        self.effects.append("charged")
        await ctx.elicit("Sure?", bool)
        return "charged"

    async def idempotent(self, ctx: Context) -> str:
        self.effects.append("ran")
        await ctx.elicit("Sure?", bool)
        return "done"

    async def destructive(self, ctx: Context) -> str:
        return await self.charge(ctx)


@asynccontextmanager
async def process(effects: list[str], **options: Any) -> AsyncIterator[tuple[Shop, Talk]]:
    """A process of the shop, and a connection to it."""
    shop = Shop(effects, **options)
    async with talk_to(shop.server) as talk:
        yield shop, talk


async def parked(tool: str, effects: list[str], **options: Any) -> Round:
    """The first round of a call whose process ends then."""
    async with process(effects, **options) as (_, talk):
        return await talk.round(talk.leg(tool))


async def test_a_call_goes_on_in_another_process_and_its_steps_are_not_done_again() -> None:
    effects: list[str] = []
    asked = await parked("book", effects)
    async with process(effects) as (_, talk):
        asked = await talk.round(asked.retry(2, talk=talk))
        assert asked.message == "Sure?"
    async with process(effects) as (_, talk):
        text = await talk.text(asked.retry(True, talk=talk))
    assert text == "TP1 2 True"
    assert effects == ["searched Lisbon", "booked"]


async def test_a_changed_question_is_asked_again_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with process([]) as (_, talk):
        asked = await talk.round(talk.leg("book"))
        asked = await talk.round(asked.retry(2, talk=talk))
    async with process([]) as (shop, talk):
        shop.question = "Really sure?"
        with caplog.at_level(logging.WARNING, "trio_mcp.session"):
            again = await talk.round(asked.retry(True, talk=talk))
        assert again.message == "Really sure?"
        assert "diverged" in caplog.text
        text = await talk.text(again.retry(False, talk=talk))
    assert text == "TP1 2 False"


async def test_progress_is_silent_until_the_replay_comes_to_something_new() -> None:
    meta = {"progressToken": "t"}
    async with process([]) as (_, talk):
        first = talk.leg("loud", meta=meta)
        assert (await talk.receive())["params"]["progress"] == 1
        asked = await talk.round(first)
    async with process([]) as (_, talk):
        second = asked.retry(True, talk=talk, meta=meta)
        assert (await talk.receive())["params"]["progress"] == 2
        assert (await talk.result(second))["resultType"] == "input_required"


@pytest.mark.parametrize("tool", ["charge", "destructive"])
async def test_a_call_that_must_not_run_twice_is_reported_as_lost(tool: str) -> None:
    effects: list[str] = []
    asked = await parked(tool, effects)
    async with process(effects) as (_, talk):
        assert "restarted" in await talk.failure(asked.retry(True, talk=talk))
    assert effects == ["charged"]


@pytest.mark.parametrize("sealed", ["here", "by another process"])
async def test_the_state_of_a_call_that_is_over_never_runs_it_again(sealed: str) -> None:
    effects: list[str] = []
    asked = await parked("idempotent", [])
    async with process(effects, outcome_grace=60) as (_, talk):
        if sealed == "here":
            asked = await talk.round(talk.leg("idempotent"))
        assert await talk.text(asked.retry(True, talk=talk)) == "done"
        await trio.sleep(61)
        assert await talk.error(asked.retry(True, talk=talk)) == STATE_ERROR
    assert effects == ["ran"]


async def test_other_keys_refuse_a_state_and_nothing_runs() -> None:
    effects: list[str] = []
    asked = await parked("idempotent", effects)
    async with process(effects, keys=KeyRing.random()) as (_, talk):
        error = await talk.error(asked.retry(True, talk=talk))
    assert error == STATE_ERROR
    assert effects == ["ran"]


async def test_a_journal_that_is_too_large_to_travel_goes_to_the_store() -> None:
    store = MemoryJournals()
    async with process([], max_state=500, store=store) as (_, talk):
        asked = await talk.round(talk.leg("big"))
        assert len(asked.state) < 1000
        assert [len(value) > 1000 for value in store.kept.values()] == [True]
    async with process([], max_state=500, store=store) as (_, talk):
        ids = [asked.retry(True, talk=talk) for _ in range(3)]
        texts = [(await talk.receive())["result"]["content"][0]["text"] for _ in ids]
    assert [json.loads(text) for text in texts] == [1000] * 3


async def test_without_a_store_a_large_journal_is_lost_with_its_process() -> None:
    asked = await parked("big", [], max_state=500)
    async with process([], max_state=500) as (_, talk):
        assert "what it had recorded" in await talk.failure(asked.retry(True, talk=talk))


async def test_a_step_that_cannot_be_kept_is_an_error_where_it_is_done() -> None:
    server = Server("odd")

    @server.tool(resume="replay")
    async def odd(ctx: Context) -> str:
        await ctx.step("odd", object)
        return "never"

    async with talk_to(server) as talk:
        assert await talk.failure(talk.leg("odd"))


def test_the_environment_names_the_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    text = "A" * 43
    monkeypatch.setenv("TRIO_MCP_KEYS", text)
    assert KeyRing.from_environment() is not None
    file = tmp_path / "keys"
    file.write_text(text + "\n")
    monkeypatch.setenv("TRIO_MCP_KEYS", str(file))
    assert KeyRing.from_environment() is not None
    for missing in (tmp_path / "missing", tmp_path):
        monkeypatch.setenv("TRIO_MCP_KEYS", str(missing))
        with pytest.raises(ConfigurationError, match=naming("TRIO_MCP_KEYS", "file")) as caught:
            KeyRing.from_environment()
        assert "base64url" not in str(caught.value)
    monkeypatch.setenv("TRIO_MCP_KEYS", "short")
    with pytest.raises(ValueError, match="TRIO_MCP_KEYS"):
        KeyRing.from_environment()
    monkeypatch.delenv("TRIO_MCP_KEYS")
    assert KeyRing.from_environment() is None


async def test_without_keys_the_log_says_what_that_means(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TRIO_MCP_KEYS", raising=False)
    with caplog.at_level(logging.INFO, "trio_mcp.session"):
        async with process([], keys=None) as (_, talk):
            for _ in range(2):
                await talk.round(talk.leg("idempotent"))
    assert caplog.text.count("TRIO_MCP_KEYS") == 1


async def test_a_client_in_the_process_gets_no_advice_about_keys(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TRIO_MCP_KEYS", raising=False)
    server = Server("asks")

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Sure?", bool)).action

    with caplog.at_level(logging.INFO, "trio_mcp.session"):
        async with Client.connect(server, on_elicit=accept_defaults) as client:
            assert (await client.call_tool("ask")).text == "decline"
    assert "TRIO_MCP_KEYS" not in caplog.text


async def test_an_answer_to_a_question_that_another_process_asked_is_not_given_to_a_different_one_here() -> None:
    async with process([]) as (_, here), process([]) as (_, there):
        first = await here.round(here.leg("book"))
        await here.round(first.retry("no number"))  # asks for the seat again
        sure = await there.round(first.retry(2, talk=there))
        assert await here.text(sure.retry(True, talk=here)) == "TP1 2 True"


class SlowJournals(MemoryJournals):
    """Takes ten seconds for everything."""

    async def put(self, key: str, value: bytes, ttl: float) -> None:
        await trio.sleep(10)
        await super().put(key, value, ttl)

    async def get(self, key: str) -> bytes | None:
        await trio.sleep(10)
        return await super().get(key)


@pytest.mark.parametrize("leave", ["cancel", "disconnect", "close"])
async def test_a_leg_that_is_given_up_while_its_journal_is_fetched_runs_nothing(leave: str) -> None:
    store, effects = MemoryJournals(), []
    asked = await parked("book", [], max_state=10, store=store)
    slow = SlowJournals()
    slow.kept = store.kept
    async with process(effects, max_state=10, store=slow) as (_, talk):
        leg = asked.retry(2, talk=talk)
        await trio.sleep(5)
        assert talk.session.busy
        match leave:
            case "cancel":
                talk.cancel(leg)
            case "disconnect":
                talk.session.disconnect(talk.listeners[leg])
            case _:
                talk.session.close(CancelReason.DISCONNECT)
        assert not talk.session.busy
        await trio.sleep(10)
        assert talk.waiting() == []
        assert talk.service.supervisor.statistics().started == 0


async def test_a_question_that_is_given_up_while_the_journal_is_kept_is_not_asked() -> None:
    server = Server("hasty", options=ServiceOptions(keys=KEYS, max_state=10, store=SlowJournals()))

    @server.tool(resume="replay")
    async def hasty(ctx: Context) -> str:
        await ctx.step("big", lambda: "x" * 1000)
        with trio.move_on_after(5):
            await ctx.elicit("Quick?", bool)
        await trio.sleep(10)
        return "nobody was asked"

    async with talk_to(server) as talk:
        leg = talk.leg("hasty")
        await trio.sleep(20)
        assert await talk.text(leg) == "nobody was asked"


def lost_calls() -> list[str]:
    parked = StatePayload("node", {})
    dropped = StatePayload("node", {}, dropped_bytes=1)
    waiting = [parked.lost_reason(ResumeMode.PARKED), dropped.lost_reason(ResumeMode.REPLAY)]
    return [RESTARTED, UNREADABLE, str(StepMayHaveRun("…")).replace("'", ""), *filter(None, waiting)]


def test_the_page_has_every_text_of_a_call_that_was_lost() -> None:
    page = Page("troubleshooting").text
    assert [text for text in lost_calls() if re.split(r" Nothing| What it did", text)[0] not in page] == []
