"""`ctx.elicit`, `ctx.sample` and `ctx.roots` with a `timeout`: a question without an answer is withdrawn, in both eras."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import pytest
import trio
from naming import unnamed
from talk import Talk, accept, offering, session_with, talk_to
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Context, RequestTimeout, Server

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
async def test_a_live_question_that_nobody_answers_is_withdrawn_at_the_client(
    talk: Talk, kind: str, autojump_clock: MockClock
) -> None:
    method = ASKS[kind][0]
    call = talk.call("patient", {"kind": kind})
    question = await talk.question(method)
    assert (await talk.notification("notifications/cancelled"))["requestId"] == question["id"]
    text = await talk.text(call)
    assert text.startswith("3: ")
    assert unnamed(text, method, "3 seconds") == []
    talk.answer(question, {})  # too late
    await talk.silence()
    assert talk.session._asks.mailboxes == {}  # noqa: SLF001


@pytest.mark.parametrize("kind", list(ASKS))
async def test_a_question_of_a_round_that_nobody_answers_leaves_the_round(
    server: Server, kind: str, autojump_clock: MockClock
) -> None:
    """The call goes on while it is parked; the next leg is told what became of it."""
    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg("patient", {"kind": kind}))
        await trio.sleep(10)
        assert unnamed(await talk.text(asked.retry(3)), "3 seconds") == []


async def test_what_is_asked_instead_goes_out_and_the_withdrawn_question_does_not(
    server: Server, autojump_clock: MockClock
) -> None:
    async with talk_to(server) as talk:
        first = await talk.round(talk.leg("again"))
        await trio.sleep(10)
        second = await talk.round(first.retry(3))
        assert second.message == "Any at all?"
        assert await talk.text(second.retry(True)) == "accept"


async def test_a_question_that_times_out_before_its_round_goes_out_is_never_sent(autojump_clock: MockClock) -> None:
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


async def test_a_timeout_that_the_tool_lets_out_is_told_in_its_own_words(talk: Talk, autojump_clock: MockClock) -> None:
    call = talk.call("impatient")
    await talk.question()
    await talk.notification("notifications/cancelled")
    assert unnamed(await talk.failure(call), "elicitation/create", "3 seconds") == []


async def test_the_time_is_for_all_attempts_at_a_valid_answer_together(talk: Talk, autojump_clock: MockClock) -> None:
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
async def test_what_is_no_time_to_wait_is_refused_and_nothing_is_sent(server: Server, wrong: object) -> None:
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
