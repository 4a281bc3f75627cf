"""A legacy call that runs again after a restart: its answers are there, and no question is on the user's screen twice."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import trio
from peer import EVERYTHING, Json, message_of
from talk import DECLINE, Talk, accept, session_with

from trio_mcp import Context, Server
from trio_mcp.errors import PeerError, ProtocolError
from trio_mcp.session import ServiceOptions
from trio_mcp.session.calls.asks_requests import CallByRequests
from trio_mcp.session.calls.previous_run import PreviousRequest, PreviousRun
from trio_mcp.session.replies import ReplyTarget

Tool = Callable[..., Coroutine[Any, Any, str]]


def offering_replay(tool: Tool, **options: Any) -> Server:
    server = Server("tester", options=ServiceOptions(**options))
    server.tool(resume="replay", name="tool")(tool)
    return server


async def two_questions(ctx: Context) -> str:
    first = await ctx.elicit("First?", int)
    second = await ctx.elicit("Second?", int)
    return f"{first.action} {second.action}"


def left_by(talk: Talk) -> PreviousRun:
    """What the run of the only call of this session leaves if its process ends now."""
    (target,) = talk.session.requests
    call = target.work
    assert isinstance(call, CallByRequests)
    assert call.memory is not None
    asked = talk.session._asks.recorded  # noqa: SLF001
    requests = {
        question.key: PreviousRequest(number, "elicitation/create", question.fingerprint, question.in_turn)
        for number, question in asked.items()
    }
    return PreviousRun(call.memory.journal.entries, requests)


@asynccontextmanager
async def after_restart(
    server: Server, run: PreviousRun, first_id: int = 1000, capabilities: Json = EVERYTHING
) -> AsyncIterator[Talk]:
    """The session in the next process, in which its call 7 runs again."""
    async with session_with(server, capabilities=capabilities) as talk:
        talk.session.connection._next_id = first_id - 1  # noqa: SLF001
        target = ReplyTarget(7, talk.outbox, open_requests=talk.session.requests)
        talk.session.requests.add(target)
        request = message_of({"id": 7, "method": "tools/call", "params": {"name": "tool", "arguments": {}}})
        talk.session.resume(request, target, talk.peer, run)
        yield talk


async def begun(server: Server, *answers: Any) -> PreviousRun:
    """The stored log of a call that asked one question more than there are answers."""
    async with session_with(server) as talk:
        talk.call("tool", id=7)
        for answer in answers:
            talk.answer(await talk.question(), answer)
        await talk.question()
        return left_by(talk)


async def test_a_call_gets_the_answers_of_its_earlier_run_and_waits_for_the_open_one_under_its_id() -> None:
    server = offering_replay(two_questions)
    run = await begun(server, accept(value=1))
    (request,) = run.requests.values()
    async with after_restart(server, run) as talk:
        await talk.silence()
        talk.send({"id": request.id, "result": DECLINE})
        assert await talk.text(7) == "accept decline"


async def test_an_answer_that_comes_before_the_body_asks_again_reaches_it() -> None:
    server = offering_replay(two_questions)
    run = await begun(server)
    (request,) = run.requests.values()
    async with after_restart(server, run) as talk:
        # The body has not run yet.
        talk.send({"id": request.id, "result": DECLINE})
        talk.answer(await talk.question(), accept(value=2))
        assert await talk.text(7) == "decline accept"


async def test_a_new_question_has_an_id_that_no_earlier_one_had() -> None:
    server = offering_replay(two_questions)
    run = await begun(server)
    (request,) = run.requests.values()
    async with after_restart(server, run) as talk:
        talk.send({"id": request.id, "result": DECLINE})
        assert (await talk.question())["id"] == 1000


async def test_an_error_that_the_client_sent_is_not_asked_for_again() -> None:
    async def tool(ctx: Context) -> str:
        try:
            await ctx.sample("Say yes")
        except PeerError as error:
            said = f"{error.code} {error.message}"
        return f"{said} {(await ctx.elicit('Sure?', bool)).action}"

    server = offering_replay(tool)
    async with session_with(server) as talk:
        talk.call("tool", id=7)
        question = await talk.question("sampling/createMessage")
        talk.send({"id": question["id"], "error": {"code": -1, "message": "User rejected sampling request"}})
        asked = await talk.question()
        run = left_by(talk)
    async with after_restart(server, run) as talk:
        await talk.silence()
        talk.send({"id": asked["id"], "result": DECLINE})
        assert await talk.text(7) == "-1 User rejected sampling request decline"


async def test_a_malformed_answer_is_not_asked_for_again() -> None:
    async def tool(ctx: Context) -> str:
        try:
            await ctx.elicit("Well?", bool)
        except ProtocolError as error:
            said = type(error).__name__
        return f"{said} {(await ctx.elicit('Sure?', bool)).action}"

    server = offering_replay(tool)
    run = await begun(server, {"action": 7})
    (request,) = run.requests.values()
    async with after_restart(server, run) as talk:
        await talk.silence()
        talk.send({"id": request.id, "result": DECLINE})
        assert await talk.text(7) == "MalformedAnswer decline"


async def test_a_changed_question_is_withdrawn_and_asked_again() -> None:
    run = await begun(offering_replay(two_questions))
    (request,) = run.requests.values()
    said: list[str] = []

    async def another(ctx: Context) -> str:
        return (await ctx.elicit("Something else?", int)).action

    async with after_restart(offering_replay(another, on_divergence=said.append), run) as talk:
        assert (await talk.notification("notifications/cancelled"))["requestId"] == request.id
        talk.answer(await talk.question(), accept(value=1))
        assert await talk.text(7) == "accept"
    assert len(said) == 1


async def test_what_the_body_does_not_ask_again_is_withdrawn_at_the_end_of_the_call() -> None:
    run = await begun(offering_replay(two_questions))
    (request,) = run.requests.values()

    async def silent(ctx: Context) -> str:
        return "done"

    async with after_restart(offering_replay(silent), run) as talk:
        assert (await talk.notification("notifications/cancelled"))["requestId"] == request.id
        assert await talk.text(7) == "done"


async def test_the_user_gets_no_second_question_while_the_first_is_on_the_screen() -> None:
    order = ["a", "b"]

    async def ask(ctx: Context, name: str, seconds: float) -> str:
        await trio.sleep(seconds)
        return f"{name}:{(await ctx.elicit(f'{name}?', int)).action}"

    async def tool(ctx: Context) -> str:
        later = dict(zip(order, (0, 5), strict=True))
        return " ".join(
            await ctx.branch_all(lambda child: ask(child, "a", later["a"]), lambda child: ask(child, "b", later["b"]))
        )

    server = offering_replay(tool)
    run = await begun(server)
    order.reverse()
    async with after_restart(server, run) as talk:
        await trio.sleep(10)
        assert talk.waiting() == [], "b asks first now, and a is still on the screen"
        (request,) = run.requests.values()
        talk.send({"id": request.id, "result": DECLINE})
        question = await talk.question()
        assert question["params"]["message"] == "b?"
        talk.answer(question, accept(value=1))
        assert await talk.text(7) == "a:decline b:accept"


async def test_a_call_that_must_not_run_twice_ends_with_an_error_and_withdraws_its_question() -> None:
    run = await begun(offering_replay(two_questions))
    server = Server("tester")
    server.tool(resume="parked", name="tool")(two_questions)
    async with after_restart(server, run) as talk:
        await talk.notification("notifications/cancelled")
        assert "restarted" in await talk.failure(7)


async def test_a_call_that_is_not_replayed_keeps_no_journal() -> None:
    server = Server("tester")
    server.tool(resume="parked", name="tool")(two_questions)
    async with session_with(server) as talk:
        talk.call("tool", id=7)
        await talk.question()
        assert talk.session._asks.recorded == {}  # noqa: SLF001


async def test_the_elicitations_of_a_call_have_the_same_ids_when_it_runs_again() -> None:
    ids: list[str] = []

    async def tool(ctx: Context) -> str:
        for _ in range(3):
            answer = await ctx.elicit("Number?", int)
            assert answer.action == "accept"
            ids.append(answer.exchange.id)
        return "done"

    server = offering_replay(tool)
    run = await begun(server, accept(value=1), accept(value=2))
    (request,) = run.requests.values()
    first, ids = ids, []
    async with after_restart(server, run) as talk:
        talk.send({"id": request.id, "result": accept(value=3)})
        await talk.text(7)
    assert ids[:2] == first
    assert [name.rpartition("_")[2] for name in ids] == ["1", "2", "3"]
