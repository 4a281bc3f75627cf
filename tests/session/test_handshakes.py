"""A second `initialize` in an open session: gateways send one. An equal one gets the first answer again, others an error."""

from __future__ import annotations

import pytest
from peer import EVERYTHING, Json, hello
from talk import Talk, offering, session_with, talk_to
from wire_terms import INVALID_REQUEST, LEGACY_REVISIONS, NEWEST_LEGACY

from trio_mcp import Context, Server

OTHER = hello(capabilities={**EVERYTHING, "experimental": {"a": {}}})


@pytest.mark.parametrize("version", [*LEGACY_REVISIONS, "1999-01-01", "2099-12-31"])
async def test_an_equal_second_handshake_gets_the_first_answer_under_its_own_id(version: str) -> None:
    async with talk_to(Server("shop", version="1", instructions="Ask away.")) as talk:
        first = await talk.initialize(version)
        for more in ({}, {"_meta": {"progressToken": "p", "trace": 1}}, {"vendor": {}}):
            again = talk.request("initialize", {**hello(version), **more}, id=f"again {len(more)} {more}")
            assert await talk.result(again) == first


async def test_the_first_answer_comes_again_although_the_server_offers_more_by_now() -> None:
    server = offering()
    async with talk_to(server) as talk:
        first = await talk.initialize()
        server.add_prompt(lambda: "text", name="late")
        assert await talk.result(talk.request("initialize", hello())) == first
        other = Talk(talk.service)
        assert (await other.initialize())["capabilities"].keys() - first["capabilities"].keys() == {"prompts"}


@pytest.mark.parametrize("params", [hello(), OTHER], ids=["an equal one", "one with more capabilities"])
async def test_a_second_handshake_changes_nothing_of_the_session(params: Json) -> None:
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Well?", str)).action

    async def logs(ctx: Context) -> str:
        await ctx.log("critical", "below the level of the session")
        await ctx.log("alert", "at its level")
        return "logged"

    async with session_with(offering(ask, logs)) as talk:
        await talk.result(talk.request("logging/setLevel", {"level": "alert"}))
        call = talk.call("ask")
        question = await talk.question()
        again = talk.request("initialize", params)
        if params == hello():
            assert (await talk.result(again))["protocolVersion"] == NEWEST_LEGACY
            talk.notify("notifications/initialized")
        else:
            assert (await talk.error(again))["code"] == INVALID_REQUEST
        assert len(talk.service.subscriptions) == 1
        talk.answer(question, {"action": "decline"})
        assert await talk.text(call) == "decline"
        call = talk.call("logs")
        assert (await talk.notification("notifications/message"))["level"] == "alert"
        assert await talk.text(call) == "logged"


async def test_a_second_handshake_may_be_larger_than_what_a_session_keeps() -> None:
    """Nothing is kept of it."""
    async with session_with(offering()) as talk:
        await talk.result(talk.request("initialize", {**hello(), "_meta": {"note": "x" * 100_000}}))
