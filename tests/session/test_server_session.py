"""The server's end of a conversation, driven with plain JSON in both eras."""

from __future__ import annotations

import math

import pytest
import trio
from naming import unnamed
from talk import Legacy, Talk, accept, log_level, offering, play, session_with, talk_to
from trio.testing import wait_all_tasks_blocked
from wire_terms import METHOD_NOT_FOUND, PARSE_ERROR

from trio_mcp import CancelReason
from trio_mcp.errors import LocalProtocolError
from trio_mcp.server import Accepted, Context, Server


@pytest.fixture
def server() -> Server:
    """A server with a tool that answers at once, one that never ends, and one that asks."""

    async def add(a: int, b: int = 0) -> int:
        return a + b

    async def wait() -> str:
        await trio.sleep_forever()
        return "never"

    async def ask(ctx: Context, reask: int = 2) -> str:
        answer = await ctx.elicit("How many?", int, reask=reask)
        return f"accept {answer.content!r}" if isinstance(answer, Accepted) else answer.action

    return offering(add, wait, ask)


# opening


async def test_both_eras_may_share_a_connection(talk: Talk) -> None:
    old, new = talk.call("ask"), talk.leg("ask")
    question = await talk.question()
    asked = await talk.round(new)
    talk.answer(question, accept(value=1))
    assert await talk.text(old) == "accept 1"
    assert await talk.text(asked.retry(2)) == "accept 2"


# refusing


@pytest.mark.parametrize("method", ["no/such/method", "prompts/list", "roots/list"])
async def test_a_method_that_is_not_offered_is_not_found(talk: Talk, method: str) -> None:
    error = await talk.error(talk.request(method))
    assert error["code"] == METHOD_NOT_FOUND
    assert method in error["message"]


async def test_bytes_that_are_no_message_are_answered_and_the_session_goes_on(talk: Talk) -> None:
    talk.send_bytes(b"{nonsense")
    message = await talk.receive()
    assert "id" not in message
    assert message["error"]["code"] == PARSE_ERROR
    assert await talk.result(talk.request("ping")) == {}


# cancelling


async def test_clean_up_that_asks_gets_an_error_at_once_and_nothing_is_sent(era: type[Legacy]) -> None:
    reasons: list[CancelReason | None] = []

    async def asks_at_the_end(ctx: Context) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True), pytest.raises(LocalProtocolError):
                await ctx.elicit("Really?", bool)
            reasons.append(ctx.cancel_reason)
            await ctx.elicit("Not even behind a shield?", bool)
            reasons.append(None)

    async with play(offering(asks_at_the_end), era) as player:
        call = await player.call("asks_at_the_end")
        await wait_all_tasks_blocked()
        player.talk.cancel(call)
        await player.talk.silence()
        assert player.talk.service.statistics().is_idle
    assert reasons == [CancelReason.CLIENT]


# asking


@pytest.mark.parametrize("reask", [0, 2])
async def test_after_the_last_attempt_an_invalid_answer_is_an_error_result(
    server: Server, era: type[Legacy], reask: int
) -> None:
    async with play(server, era) as player:
        await player.call("ask", {"reask": reask})
        for _ in range(reask + 1):
            await player.question()
            await player.answer(accept(value="many"))
        text = await player.failure()
        assert "How many?" in text
        assert unnamed(text, f"{reask + 1} attempts") == []


async def test_a_client_that_can_only_open_pages_is_asked_no_form(server: Server, era: type[Legacy]) -> None:
    async with play(server, era, {"elicitation": {"url": {}}}) as player:
        await player.call("ask")
        refusal = await player.failure() if era is Legacy else (await player.error())["message"]
        assert "elicitation" in refusal


# telling


async def test_the_level_of_one_session_is_not_that_of_another() -> None:
    async def logs(ctx: Context) -> str:
        for level in ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"):
            await ctx.log(level, {"at": level}, logger="tests")
        return "done"

    async with session_with(offering(logs)) as talk:
        other = Talk(talk.service)
        await other.initialize()
        await talk.result(talk.request("logging/setLevel", {"level": "emergency"}))
        await other.result(other.request("logging/setLevel", {"level": "alert"}))
        for each, count in ((talk, 1), (other, 2)):
            call = each.call("logs")
            for _ in range(count):
                await each.notification("notifications/message")
            await each.text(call)


async def test_a_bad_value_is_named_with_its_place(server: Server) -> None:
    """In either era, and cut to what an error can show."""
    async with talk_to(server) as talk:
        modern = await talk.error(talk.leg("hello", meta=log_level("loud")))
        await talk.initialize()
        legacy = await talk.error(talk.request("logging/setLevel", {"level": "loud" * 1000}))
        number = await talk.error(talk.request("tools/call", {"name": 7}))
    assert (modern["code"], legacy["code"], number["code"]) == (-32602, -32602, -32602)
    assert "logLevel" in modern["message"]
    assert modern["message"].endswith(", not 'loud'")
    assert legacy["message"].startswith("params.level: ")
    assert legacy["message"].endswith(f", not {'loud' * 16!r}")
    assert number["message"].endswith(", not 7")


@pytest.mark.parametrize("values", [[2, 1], [1, 1], [math.nan], [math.inf], [-math.inf]], ids=str)
async def test_progress_that_does_not_rise_is_dropped(era: type[Legacy], values: list[float]) -> None:
    async def steps(ctx: Context) -> str:
        for value in values:
            await ctx.progress(value)
        return "done"

    async with play(offering(steps), era) as player:
        call = await player.call("steps", meta={"progressToken": "p"})
        messages = [await player.talk.receive()]
        while messages[-1].get("id") != call:
            messages.append(await player.talk.receive())
        assert not messages[-1]["result"].get("isError")
        assert len(values) - 1 == len(messages) - 1  # what was right before it was sent


@pytest.mark.parametrize("value", [10**320, 10**5000], ids=["321 digits", "5001 digits"])
async def test_progress_that_its_reader_would_refuse_is_refused_in_the_tool(era: type[Legacy], value: int) -> None:
    async def steps(ctx: Context) -> str:
        await ctx.progress(value)
        return "done"

    async with play(offering(steps), era) as player:
        call = await player.call("steps", meta={"progressToken": "p"})
        answer = await player.talk.receive()
        assert answer["id"] == call
        assert unnamed(str(answer), "params.progress", "320 characters") == []


# failing


# keeping calls apart


async def test_the_repr_shows_the_client_and_what_runs(talk: Talk) -> None:
    talk.call("wait")
    assert repr(talk.session).startswith("<ServerSession with tester calls=1 <Connection open ")
