"""What VS Code sends about a task (`mcpServerRequestHandler.ts`, `mcpTaskManager.ts`): its request shapes, in its order."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from peer import Json
from talk import Talk, talk_to
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import CancelReason, Context, Server, ServiceOptions, TaskOptions
from trio_mcp.session.tasks.questions import POLLS

CAPABILITIES: Json = {
    "roots": {"listChanged": True},
    "sampling": {},
    "elicitation": {"form": {}, "url": {}},
    "tasks": {"list": {}, "cancel": {}, "requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}},
}


async def confirm(ctx: Context) -> str:
    return (await ctx.elicit("Sure?", bool)).action


@asynccontextmanager
async def asking_task(
    clock: MockClock, *, polls: int = POLLS, has_channel: bool = True, principal: str | None = None
) -> AsyncIterator[tuple[Talk, str]]:
    """A task that asks, whose client could have polled its state this often, and did nothing else."""
    server = Server("tester", version="1")
    server.tool(task=True)(confirm)
    async with talk_to(server, principal=principal) as talk:
        await talk.initialize(capabilities=CAPABILITIES)
        if not has_channel:
            talk.session.attach(None)
        called = talk.request("tools/call", {"name": "confirm", "arguments": {}, "task": {}})
        task = (await talk.result(called))["task"]
        await wait_all_tasks_blocked()
        for _ in range(polls):
            clock.jump(task["pollInterval"] / 1000)
            await wait_all_tasks_blocked()
        yield talk, task["taskId"]


def prompts(talk: Talk) -> list[Json]:
    return [message for message in talk.waiting() if message.get("method") == "elicitation/create"]


async def status(talk: Talk, task_id: str) -> str:
    await wait_all_tasks_blocked()
    talk.waiting()
    return str((await talk.result(talk.request("tasks/get", {"taskId": task_id})))["status"])


async def test_a_client_that_only_polls_gets_the_question_on_the_channel_of_its_session(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock) as (talk, task_id):
        (question,) = prompts(talk)
        assert question["params"]["_meta"]["io.modelcontextprotocol/related-task"] == {"taskId": task_id}
        talk.answer(question, {"action": "decline"})
        assert await status(talk, task_id) == "completed"
        result = await talk.result(talk.request("tasks/result", {"taskId": task_id}))
        assert result["content"][0]["text"] == "decline"


async def test_a_client_has_the_time_of_two_polls_to_fetch_a_question(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock, polls=POLLS - 1) as (talk, task_id):
        assert prompts(talk) == []
        talk.request("tasks/result", {"taskId": task_id})
        await wait_all_tasks_blocked()
        assert len(prompts(talk)) == 1
        mock_clock.jump(60)
        await wait_all_tasks_blocked()
        assert prompts(talk) == []


async def test_a_question_on_the_screen_is_not_asked_again_for_tasks_result(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock) as (talk, task_id):
        (question,) = prompts(talk)
        waits = talk.request("tasks/result", {"taskId": task_id})
        await wait_all_tasks_blocked()
        assert prompts(talk) == []
        talk.answer(question, {"action": "decline"})
        await wait_all_tasks_blocked()
        (answer,) = [message for message in talk.waiting() if message.get("id") == waits]
        assert answer["result"]["content"][0]["text"] == "decline"


async def test_a_question_without_an_answer_is_sent_once(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock) as (talk, task_id):
        assert len(prompts(talk)) == 1
        mock_clock.jump(600)
        assert await status(talk, task_id) == "input_required"
        assert prompts(talk) == []


@pytest.mark.parametrize(
    "options",
    [ServiceOptions(outbox=4), ServiceOptions(tasks=TaskOptions(waiting_per_owner=4))],
    ids=["the channel is full", "as many questions wait as may"],
)
async def test_the_questions_of_many_tasks_are_asked_when_there_is_room_for_them(
    options: ServiceOptions, autojump_clock: MockClock
) -> None:
    server, count = Server("tester", version="1", options=options), 20
    server.tool(task=True)(confirm)
    async with talk_to(server) as talk:
        await talk.initialize(capabilities=CAPABILITIES)
        for _ in range(count):
            await talk.result(talk.request("tools/call", {"name": "confirm", "arguments": {}, "task": {}}))
            await wait_all_tasks_blocked()
            talk.waiting()
        with trio.fail_after(600):
            while len(talk.service.tasks):
                for question in prompts(talk):
                    talk.answer(question, {"action": "decline"})
                await trio.sleep(options.tasks.poll_interval)


async def test_a_session_without_a_channel_is_asked_when_it_has_one(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock, has_channel=False) as (talk, _):
        assert prompts(talk) == []
        talk.session.attach(talk.outbox)
        mock_clock.jump(60)
        await wait_all_tasks_blocked()
        assert len(prompts(talk)) == 1


async def test_tasks_result_gets_a_question_whose_channel_is_lost(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock) as (talk, task_id):
        assert len(prompts(talk)) == 1
        talk.session.attach(None)
        talk.request("tasks/result", {"taskId": task_id})
        await wait_all_tasks_blocked()
        (question,) = prompts(talk)
        talk.answer(question, {"action": "decline"})
        assert await status(talk, task_id) == "completed"


async def test_another_session_of_the_owner_that_asks_for_the_result_gets_the_question(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock, principal="bob") as (talk, task_id):
        assert len(prompts(talk)) == 1
        second = Talk(talk.service, principal="bob")
        with second.outbox:
            await second.initialize(capabilities=CAPABILITIES)
            second.request("tasks/result", {"taskId": task_id})
            await wait_all_tasks_blocked()
            assert [message["method"] for message in talk.waiting()] == ["notifications/cancelled"]
            (question,) = prompts(second)
            second.answer(question, {"action": "decline"})
            assert await status(second, task_id) == "completed"


async def test_a_task_whose_session_ends_while_it_asks_there_can_still_be_answered(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock, principal="bob") as (talk, task_id):
        assert len(prompts(talk)) == 1
        second = Talk(talk.service, principal="bob")
        with second.outbox:
            await second.initialize(capabilities=CAPABILITIES)
            talk.session.close(CancelReason.DISCONNECT)
            await wait_all_tasks_blocked()
            second.request("tasks/result", {"taskId": task_id})
            await wait_all_tasks_blocked()
            assert len(prompts(second)) == 1
