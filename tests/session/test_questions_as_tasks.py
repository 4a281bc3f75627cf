"""Samples and questions that a server runs as tasks at a client of 2025-11-25 (L-TSK-1, 3, 6, 8, L-CAN-1b)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from peer import EVERYTHING, Json, arrived, json_of
from talk import Talk, accept, session_with, talk_to
from test_legacy_journal import after_restart, left_by
from trio.testing import wait_all_tasks_blocked
from wire_terms import MODERN

from trio_mcp import Context, PeerError, Server, ServiceOptions, TaskOptions
from trio_mcp.session.calls import client_tasks

RUNS_TASKS: Json = {
    **EVERYTHING,
    "tasks": {"cancel": {}, "requests": {"elicitation": {"create": {}}, "sampling": {"createMessage": {}}}},
}
TASK: Json = {
    "taskId": "t",
    "status": "working",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00Z",
    "ttl": None,
}
SAMPLED: Json = {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m", "stopReason": "endTurn"}


async def tool(ctx: Context) -> str:
    """Ask the user."""
    return (await ctx.elicit("Sure?", bool)).action


async def two(ctx: Context) -> str:
    """Ask the user twice."""
    first = await ctx.elicit("First?", bool)
    second = await ctx.elicit("Second?", bool)
    return f"{first.action} {second.action}"


async def sampled(ctx: Context) -> str:
    """Ask the model."""
    return (await ctx.sample("Say yes")).text


async def hurried(ctx: Context) -> str:
    """Ask the user, and do not wait for long."""
    with trio.move_on_after(1):
        await ctx.elicit("Sure?", bool)
    return "went on"


async def lasting(ctx: Context) -> str:
    """Ask the user for five seconds."""
    return (await ctx.elicit("Sure?", bool, timeout=5)).action


async def careful(ctx: Context) -> str:
    """Ask the user, who may refuse."""
    try:
        return (await ctx.elicit("Sure?", bool)).action
    except PeerError:
        return "rejected"


def server(**options: Any) -> Server:
    made = Server("tester", options=ServiceOptions(tasks=TaskOptions(ask_as_tasks=True), **options))
    for each in (tool, two, sampled, hurried, lasting, careful):
        made.tool(resume="replay")(each)
    return made


@asynccontextmanager
async def session(capabilities: Json = RUNS_TASKS) -> AsyncIterator[Talk]:
    async with session_with(server(), capabilities=capabilities) as talk:
        yield talk


async def asked(talk: Talk, method: str = "elicitation/create") -> Json:
    """The next request of the server."""
    question = await talk.receive()
    assert question["method"] == method, question
    return question


async def result_asked(talk: Talk, **task: Any) -> Json:
    """The request for the result of the task that the next question became."""
    question = await talk.receive()
    talk.answer(question, {"task": {**TASK, **task}})
    return await asked(talk, "tasks/result")


@pytest.mark.parametrize(
    ("name", "method", "answer", "text"),
    [
        ("tool", "elicitation/create", accept(value=True), "accept"),
        ("sampled", "sampling/createMessage", SAMPLED, "yes"),
    ],
)
async def test_what_the_client_declares_is_asked_as_a_task_whose_result_is_the_answer(
    name: str, method: str, answer: Json, text: str
) -> None:
    async with session() as talk:
        call = talk.call(name)
        question = await asked(talk, method)
        assert question["params"]["task"] == {}
        talk.answer(question, {"task": TASK})
        request = await asked(talk, "tasks/result")
        assert request["params"]["taskId"] == "t"
        talk.answer(request, answer)
        assert await talk.text(call) == text


@pytest.mark.parametrize("requests", [{}, {"sampling": {"createMessage": {}}}])
async def test_what_the_client_does_not_declare_is_asked_as_ever(requests: Json) -> None:
    async with session({**EVERYTHING, "tasks": {"requests": requests}}) as talk:
        call = talk.call("tool")
        question = await asked(talk)
        assert "task" not in question["params"]
        talk.answer(question, accept(value=True))
        assert await talk.text(call) == "accept"


async def test_without_the_option_nothing_is_a_task() -> None:
    plain = Server("tester")
    plain.tool(tool)
    async with session_with(plain, capabilities=RUNS_TASKS) as talk:
        talk.call("tool")
        assert "task" not in (await asked(talk))["params"]


async def test_a_modern_question_is_never_a_task() -> None:
    async with talk_to(server()) as talk:
        questions = (await talk.round(talk.leg("tool", capabilities=RUNS_TASKS))).questions
        assert all("task" not in question["params"] for question in questions.values()), MODERN


async def test_a_client_that_answers_at_once_has_answered() -> None:
    async with session() as talk:
        call = talk.call("tool")
        talk.answer(await asked(talk), accept(value=True))
        assert await talk.text(call) == "accept"


async def test_the_task_lives_for_as_long_as_its_answer_is_waited_for() -> None:
    async with session() as talk:
        talk.call("lasting")
        assert (await asked(talk))["params"]["task"] == {"ttl": 5000}


async def test_the_error_of_a_task_is_that_of_the_question() -> None:
    async with session() as talk:
        call = talk.call("careful")
        request = await result_asked(talk)
        talk.send({"id": request["id"], "error": {"code": -1, "message": "no"}})
        assert await talk.text(call) == "rejected"


async def test_the_result_of_another_question_is_malformed() -> None:
    async with session() as talk:
        call = talk.call("tool")
        talk.answer(await result_asked(talk), SAMPLED)
        assert "malformed" in (await talk.failure(call)).lower()


async def test_a_task_that_is_not_waited_for_any_more_is_cancelled() -> None:
    async with session() as talk:
        call = talk.call("hurried")
        request = await result_asked(talk)
        notice = await talk.receive()
        assert (notice["method"], notice["params"]["requestId"]) == ("notifications/cancelled", request["id"])
        assert (await asked(talk, "tasks/cancel"))["params"]["taskId"] == "t"
        assert await talk.text(call) == "went on"


async def test_the_task_of_a_call_that_its_client_cancels_is_cancelled_on_the_channel_of_the_session() -> None:
    """Over HTTP the client reads the response of that call no longer."""
    async with session() as talk:
        response = talk.service.open_outbox()

        async def said() -> Json:
            (envelope,) = await response.take()
            return json_of(envelope.message)

        call = b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"tool","arguments":{}}}'
        talk.session.receive(arrived(call), response, owns_outbox=True)
        talk.answer(await said(), {"task": TASK})
        assert (await said())["method"] == "tasks/result"
        talk.cancel(77)
        assert (await asked(talk, "tasks/cancel"))["params"]["taskId"] == "t"


async def test_a_task_whose_id_comes_as_its_call_is_cancelled_is_cancelled_too() -> None:
    async with session() as talk:
        # Trio chooses whether the call waits for the answer already.
        for _ in range(20):
            call = talk.call("tool")
            talk.answer(await asked(talk), {"task": TASK})
            talk.cancel(call)
            assert (await asked(talk, "tasks/cancel"))["params"]["taskId"] == "t"


async def test_a_task_whose_id_comes_too_late_is_cancelled_then_and_not_by_a_notification() -> None:
    async with session() as talk:
        call = talk.call("hurried")
        question = await asked(talk)
        assert await talk.text(call) == "went on"
        talk.answer(question, {"task": TASK})
        assert (await asked(talk, "tasks/cancel"))["params"]["taskId"] == "t"
        await talk.silence()


async def test_a_client_that_cannot_cancel_tasks_is_not_asked_to() -> None:
    async with session({**RUNS_TASKS, "tasks": {"requests": RUNS_TASKS["tasks"]["requests"]}}) as talk:
        call = talk.call("hurried")
        await result_asked(talk)
        assert (await talk.receive())["method"] == "notifications/cancelled"
        assert await talk.text(call) == "went on"


async def test_the_ids_that_a_client_owes_for_unwanted_tasks_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_tasks, "MAX_UNWANTED", 1)
    async with session() as talk:
        for _ in range(2):
            call = talk.call("hurried")
            await asked(talk)
            if len(talk.session.connection.unanswered) > 1:
                assert (await talk.receive())["method"] == "notifications/cancelled"
            assert await talk.text(call) == "went on"
        assert len(talk.session.connection.unanswered) == 1


async def test_prompts_of_tasks_come_one_at_a_time() -> None:
    async with session() as talk:
        call = talk.call("two")
        request = await result_asked(talk)
        await talk.silence()
        talk.answer(request, accept(value=True))
        talk.answer(await result_asked(talk, taskId="u"), accept(value=False))
        assert await talk.text(call) == "accept accept"


async def test_news_of_a_task_are_taken_in_silence() -> None:
    async with session() as talk:
        call = talk.call("tool")
        request = await result_asked(talk)
        talk.notify("notifications/tasks/status", {**TASK, "status": "completed"})
        await talk.silence()
        talk.answer(request, accept(value=True))
        assert await talk.text(call) == "accept"


@pytest.mark.parametrize("has_task", [False, True], ids=["before its id came", "with its id"])
async def test_after_a_restart_the_task_is_not_asked_for_again(has_task: bool) -> None:
    asking = server()
    async with session_with(asking, capabilities=RUNS_TASKS) as talk:
        talk.call("tool", id=7)
        question = await asked(talk)
        if has_task:
            talk.answer(question, {"task": TASK})
            question = await asked(talk, "tasks/result")
        run = left_by(talk)
    async with after_restart(asking, run, capabilities=RUNS_TASKS) as talk:
        await wait_all_tasks_blocked()
        assert talk.waiting() == []
        if not has_task:
            talk.answer(question, {"task": TASK})
            question = await asked(talk, "tasks/result")
        talk.answer(question, accept(value=True))
        assert await talk.text(7) == "accept"
