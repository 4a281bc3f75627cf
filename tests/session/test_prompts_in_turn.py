"""In a legacy session the user is asked one thing at a time by each call, in the order in which it was asked."""

from __future__ import annotations

import pytest
import trio
from talk import DECLINE, Talk, accept, offering, session_with

from trio_mcp import Context
from trio_mcp.errors import ElicitationInvalid


async def ask(ctx: Context, name: str) -> str:
    return f"{name}:{(await ctx.elicit(f'{name}?', int)).action}"


async def after(ctx: Context, seconds: float, name: str) -> str:
    await trio.sleep(seconds)
    return await ask(ctx, name)


async def abc(ctx: Context) -> str:
    """Asks in three branches, one after the other."""
    return " ".join(
        await ctx.branch_all(
            lambda child: ask(child, "a"), lambda child: after(child, 1, "b"), lambda child: after(child, 2, "c")
        )
    )


async def settled() -> None:
    """Until everything has been asked that is asked by itself."""
    await trio.sleep(4)


def messages(talk: Talk) -> list[str]:
    """The questions that have come and were not looked at yet."""
    return [message["params"]["message"] for message in talk.waiting()]


async def test_a_question_goes_out_when_the_one_before_it_is_answered() -> None:
    async with session_with(offering(abc)) as talk:
        call = talk.call("abc")
        for name in "abc":
            await settled()
            question = await talk.question()
            assert question["params"]["message"] == f"{name}?"
            await talk.silence()
            talk.answer(question, accept(value=1))
        assert await talk.text(call) == "a:accept b:accept c:accept"


async def test_questions_of_different_calls_do_not_wait_for_each_other() -> None:
    async with session_with(offering(abc)) as talk:
        talk.call("abc")
        talk.call("abc")
        await settled()
        assert messages(talk) == ["a?", "a?"]


async def test_questions_go_out_side_by_side_where_the_server_allows_it() -> None:
    async with session_with(offering(abc, parallel_prompts=True)) as talk:
        talk.call("abc")
        await settled()
        assert messages(talk) == ["a?", "b?", "c?"]


async def test_what_is_not_for_the_user_does_not_wait() -> None:
    async def body(ctx: Context) -> str:
        await ctx.branch_all(
            lambda child: ask(child, "a"),
            lambda child: child.sample("s?"),
            lambda child: child.sample("s?"),
            lambda child: child.roots(),
        )
        return "done"

    async with session_with(offering(body)) as talk:
        talk.call("body")
        await settled()
        methods = sorted(message["method"] for message in talk.waiting())
        assert methods == ["elicitation/create", "roots/list", *["sampling/createMessage"] * 2]


async def test_a_question_that_is_cancelled_while_it_waits_never_goes_out() -> None:
    async def body(ctx: Context) -> str:
        async def gives_up(child: Context) -> str:
            with trio.move_on_after(5):
                return await after(child, 1, "b")
            return "b:given up"

        return " ".join(
            await ctx.branch_all(lambda child: ask(child, "a"), gives_up, lambda child: after(child, 2, "c"))
        )

    async with session_with(offering(body)) as talk:
        call = talk.call("body")
        first = await talk.question()
        assert first["params"]["message"] == "a?"
        await trio.sleep(6)
        assert messages(talk) == []
        talk.answer(first, accept(value=1))
        third = await talk.question()
        assert third["params"]["message"] == "c?"
        talk.answer(third, DECLINE)
        assert await talk.text(call) == "a:accept b:given up c:decline"


async def test_a_question_that_is_cancelled_when_its_turn_has_come_never_goes_out_and_passes_it_on() -> None:
    scope = trio.CancelScope()

    async def body(ctx: Context) -> str:
        async def first(child: Context) -> str:
            answered = await ask(child, "a")
            scope.cancel()  # the turn was given away in this very step
            return answered

        async def second(child: Context) -> str:
            await trio.sleep(1)
            with scope:
                return await ask(child, "b")
            return "b:cancelled"

        return " ".join(await ctx.branch_all(first, second, lambda child: after(child, 2, "c")))

    async with session_with(offering(body)) as talk:
        call = talk.call("body")
        await settled()
        talk.answer(await talk.question(), accept(value=1))
        question = await talk.question()
        assert question["params"]["message"] == "c?"
        talk.answer(question, accept(value=1))
        assert await talk.text(call) == "a:accept b:cancelled c:accept"


async def test_a_question_that_fails_or_breaks_its_form_passes_the_turn_on() -> None:
    async def body(ctx: Context) -> str:
        async def invalid(child: Context) -> str:
            with pytest.raises(ElicitationInvalid):
                await child.elicit("a?", int, reask=0)
            return "a:invalid"

        return " ".join(await ctx.branch_all(invalid, lambda child: after(child, 1, "b")))

    async with session_with(offering(body)) as talk:
        call = talk.call("body")
        await settled()
        talk.answer(await talk.question(), accept(value="no number"))
        talk.answer(await talk.question(), accept(value=1))
        assert await talk.text(call) == "a:invalid b:accept"
