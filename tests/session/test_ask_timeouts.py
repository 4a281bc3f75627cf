"""`ctx.elicit`, `ctx.sample` and `ctx.roots` with a `timeout`: a question without an answer is withdrawn, in both eras."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import pytest
import trio
from naming import unnamed
from talk import Json, Legacy, Talk, accept, offering, play, session_with, talk_to
from trio.testing import wait_all_tasks_blocked
from wire_terms import INVALID_PARAMS

from trio_mcp import Context, RequestTimeout, Server
from trio_mcp.errors import InvalidRequestState
from trio_mcp.protocol.sealing.request_state import Sealer
from trio_mcp.session import KeyRing

ASKS: dict[str, tuple[str, Callable[[Context, float], Awaitable[object]]]] = {
    "elicit": ("elicitation/create", lambda ctx, timeout: ctx.elicit("How many?", int, timeout=timeout)),
    "sample": ("sampling/createMessage", lambda ctx, timeout: ctx.sample("A line", timeout=timeout)),
    "roots": ("roots/list", lambda ctx, timeout: ctx.roots(timeout=timeout)),
}


@pytest.fixture
def server() -> Server:
    async def patient(kind: str, ctx: Context, seconds: float = 3) -> str:
        """Waits for `seconds`, and goes on without an answer."""
        try:
            await ASKS[kind][1](ctx, seconds)
        except RequestTimeout as error:
            return f"{trio.current_time():g}: {error}"
        return "answered"

    async def impatient(ctx: Context) -> str:
        await ctx.elicit("How many?", int, timeout=3)
        return "answered"

    async def again(ctx: Context) -> str:
        """Asks something else when no answer comes."""
        try:
            await ctx.elicit("How many?", int, timeout=3)
        except RequestTimeout:
            answer = await ctx.elicit("Any at all?", bool)
            return f"{answer.action}"
        return "answered"

    return offering(patient, impatient, again)


@pytest.mark.parametrize("kind", list(ASKS))
async def test_a_live_question_without_an_answer_is_withdrawn_at_the_client(talk: Talk, kind: str) -> None:
    method = ASKS[kind][0]
    call = talk.call("patient", {"kind": kind})
    question = await talk.question(method)
    assert (await talk.notification("notifications/cancelled"))["requestId"] == question["id"]
    text = await talk.text(call)
    assert text.startswith("3: ")
    assert unnamed(text, method, "3 seconds") == []
    talk.answer(question, {})  # too late
    await talk.silence()
    assert talk.session._asks.actors == {}  # noqa: SLF001


@pytest.mark.parametrize("kind", list(ASKS))
async def test_a_question_of_a_round_without_an_answer_leaves_the_round(server: Server, kind: str) -> None:
    """The call goes on while it is parked; the next leg gets its outcome."""
    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg("patient", {"kind": kind}))
        await trio.sleep(10)
        assert unnamed(await talk.text(asked.retry(3)), "3 seconds") == []


async def test_what_is_asked_instead_goes_out_and_the_withdrawn_question_does_not(server: Server) -> None:
    async with talk_to(server) as talk:
        first = await talk.round(talk.leg("again"))
        await trio.sleep(10)
        second = await talk.round(first.retry(3))
        assert second.message == "Any at all?"
        assert await talk.text(second.retry(True)) == "accept"


async def test_a_question_that_times_out_before_its_round_goes_out_is_never_sent() -> None:
    async def busy(ctx: Context) -> str:
        """A busy sibling holds the round back for the settle time, which is longer than the question waits."""

        async def asks(child: Context) -> str:
            try:
                await child.elicit("How many?", int, timeout=0.1)
            except RequestTimeout:
                return "nobody was asked"
            return "answered"

        async def works(_child: Context) -> str:
            await trio.sleep(1)
            return "worked"

        return ", ".join(await ctx.branch_all(asks, works))

    async with talk_to(offering(busy)) as talk:
        assert await talk.text(talk.leg("busy")) == "nobody was asked, worked"


async def test_the_time_is_for_all_attempts_at_a_valid_answer_together(talk: Talk) -> None:
    call = talk.call("patient", {"kind": "elicit"})
    for _ in range(2):
        question = await talk.question()
        await trio.sleep(1)
        talk.answer(question, accept(value="many"))
    await talk.question()
    await talk.notification("notifications/cancelled")
    assert (await talk.text(call)).startswith("3: ")


async def test_a_cancel_of_the_call_is_not_a_timeout_of_its_question(talk: Talk) -> None:
    """Also when both come at the same moment."""
    call = talk.call("patient", {"kind": "elicit", "seconds": 1e-9})
    talk.cancel(call)
    await wait_all_tasks_blocked()
    assert not [message for message in talk.waiting() if message.get("id") == call]


@pytest.mark.parametrize("wrong", [0, -1, math.nan, "3", True, None])
async def test_invalid_timeouts_are_rejected_and_nothing_is_sent(server: Server, wrong: object) -> None:
    failures: list[str] = []

    @server.tool
    async def asks(ctx: Context) -> str:
        try:
            await ctx.roots(timeout=wrong)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            failures.append(str(error))
        return "done"

    async with session_with(server) as talk:
        assert await talk.text(talk.call("asks")) == "done"
    assert [unnamed(failure, "timeout", repr(wrong)) for failure in failures] == [[]]


# an answer that comes when the call is gone

LATE = 400
"""Seconds: the outcome of the call was evicted by then, and its state is still good."""
OVER = 1000
"""Seconds: the state has expired."""
KEYS = KeyRing.random()


async def asks_with_timeout(ctx: Context) -> str:
    await ctx.elicit("How many?", int, timeout=120)
    return "answered"


async def asks_without(ctx: Context) -> str:
    await ctx.elicit("How many?", int)
    return "answered"


async def replayed(ctx: Context) -> str:
    return f"{(await ctx.elicit('How many?', int, timeout=120)).action}"


def timing_out(**options: object) -> Server:
    server = offering(asks_with_timeout, asks_without, keys=KEYS, **options)
    server.add_tool(replayed, resume="replay")
    return server


def is_invalid_state(error: Json) -> bool:
    return (error["code"], error["message"]) == (INVALID_PARAMS, InvalidRequestState.TEXT)


async def test_the_caller_reads_that_the_question_timed_out_in_both_eras(era: type[Legacy]) -> None:
    async with play(timing_out(), era) as player:
        await player.call("asks_with_timeout")
        await player.question()
        await trio.sleep(LATE)
        await player.answer(accept(value=3))
        if era is Legacy:
            await player.talk.notification("notifications/cancelled")
        assert unnamed(await player.failure(), "elicitation/create", "120 seconds") == []


@pytest.mark.parametrize("age", [LATE, OVER])
async def test_another_process_with_the_same_keys_sends_the_timeout_error_too(age: float) -> None:
    async with talk_to(timing_out()) as first, talk_to(timing_out()) as second:
        for talk in (first, second):
            talk.service.calls.sealer = Sealer(KEYS, "tester", 600, trio.current_time)
        asked = await first.round(first.leg("asks_with_timeout"))
        await trio.sleep(age)
        assert unnamed(await second.failure(asked.leg({asked.key: accept(value=3)}, talk=second)), "120 seconds") == []


async def test_a_call_that_may_be_replayed_is_replayed_with_the_late_answer() -> None:
    async with talk_to(timing_out()) as first, talk_to(timing_out()) as second:
        asked = await first.round(first.leg("replayed"))
        await trio.sleep(LATE)
        assert await second.text(asked.leg({asked.key: accept(value=3)}, talk=second)) == "accept"


async def test_a_call_whose_question_has_no_timeout_or_time_left_gets_the_one_error() -> None:
    async with talk_to(timing_out()) as talk:
        asked = await talk.round(talk.leg("asks_with_timeout"))
        assert await talk.text(asked.retry(3)) == "answered"
        await trio.sleep(100)
        assert is_invalid_state(await talk.error(asked.retry(3)))
        unlimited = await talk.round(talk.leg("asks_without"))
        assert await talk.text(unlimited.retry(3)) == "answered"
        await trio.sleep(LATE)
        assert is_invalid_state(await talk.error(unlimited.retry(3)))


@pytest.mark.parametrize("wrong", ["principal", "tool", "seal", "keys", "a tool that was removed"])
async def test_every_other_failure_of_a_late_state_stays_the_one_error(wrong: str) -> None:
    server = timing_out()
    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg("asks_with_timeout"))
        await trio.sleep(LATE)
        answers, state, tool, other = {asked.key: accept(value=3)}, asked.state, "asks_with_timeout", talk
        match wrong:
            case "principal":
                other = Talk(talk.service, principal="eve")
            case "tool":
                tool = "asks_without"
            case "seal":
                state = state[:-4] + ("AAAA" if state[-4:] != "AAAA" else "BBBB")
            case "keys":
                talk.service.calls.sealer = Sealer(KeyRing.random(), "tester")
            case _:
                server.remove_tool(tool)
        assert is_invalid_state(await other.error(other.leg(tool, state=state, answers=answers)))


async def test_a_prompt_and_a_resource_time_out_with_errors() -> None:
    async def greet(ctx: Context) -> str:
        return f"{(await ctx.elicit('Whom?', str, timeout=120)).action}"

    server = offering(keys=KEYS)
    server.prompt(resume="parked")(greet)
    async with talk_to(server) as talk:
        asked = await talk.round(talk.ask("prompts/get", name="greet"))
        await trio.sleep(LATE)
        answers = {asked.key: accept(value="you")}
        late = talk.ask("prompts/get", name="greet", requestState=asked.state, inputResponses=answers)
        assert unnamed((await talk.error(late))["message"], "120 seconds") == []
