"""Hosts that only poll a task, as VS Code does (`mcpTaskManager.ts`): where the questions of the task go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from peer import Json, text_of
from talk import DECLINE, Talk, talk_to
from task_talk import LegacyTask
from trio.testing import MockClock, wait_all_tasks_blocked
from wire_terms import RELATED_TASK

from trio_mcp import CancelReason, Context, Server, ServiceOptions, TaskOptions
from trio_mcp.session.tasks.questions import POLLS


async def confirm(ctx: Context) -> str:
    return (await ctx.elicit("Sure?", bool)).action


@asynccontextmanager
async def asking_task(
    clock: MockClock, *, polls: int = POLLS, has_channel: bool = True, principal: str | None = None
) -> AsyncIterator[LegacyTask]:
    """A task that asks, whose client could have polled its state this often, and did nothing else."""
    server = Server("tester", version="1")
    server.tool(task=True)(confirm)
    async with talk_to(server, principal=principal) as talk:
        task = LegacyTask(talk)
        await task.open()
        if not has_channel:
            talk.session.attach(None)
        interval = (await task.start("confirm"))["pollInterval"]
        await wait_all_tasks_blocked()
        for _ in range(polls):
            clock.jump(interval / 1000)
            await wait_all_tasks_blocked()
        yield task


@asynccontextmanager
async def elsewhere(task: LegacyTask) -> AsyncIterator[LegacyTask]:
    """The same task in another session of its owner."""
    second = LegacyTask(Talk(task.talk.service, principal="bob"))
    second.id = task.id
    with second.talk.outbox:
        await second.open()
        yield second


async def prompts(task: LegacyTask) -> list[Json]:
    await wait_all_tasks_blocked()
    return [message for message in task.talk.waiting() if message.get("method") == "elicitation/create"]


async def test_a_client_that_only_polls_gets_the_question_on_the_channel_of_its_session(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock) as task:
        (question,) = await prompts(task)
        assert question["params"]["_meta"][RELATED_TASK] == {"taskId": task.id}
        task.talk.answer(question, DECLINE)
        assert await task.status() == "completed"
        assert text_of(await task.result()) == "decline"


async def test_a_client_has_the_time_of_two_polls_to_fetch_a_question(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock, polls=POLLS - 1) as task:
        assert await prompts(task) == []
        task.about("tasks/result")
        assert len(await prompts(task)) == 1
        mock_clock.jump(60)
        assert await prompts(task) == []


async def test_a_question_on_the_screen_is_not_asked_again_for_tasks_result(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock) as task:
        (question,) = await prompts(task)
        waits = task.about("tasks/result")
        assert await prompts(task) == []
        task.talk.answer(question, DECLINE)
        assert text_of((await task.reply(waits))["result"]) == "decline"


async def test_a_question_without_an_answer_is_sent_once(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock) as task:
        assert len(await prompts(task)) == 1
        mock_clock.jump(600)
        assert await prompts(task) == []
        assert await task.status() == "input_required"


@pytest.mark.parametrize(
    "options",
    [ServiceOptions(outbox=4), ServiceOptions(tasks=TaskOptions(waiting_per_owner=4))],
    ids=["the channel is full", "as many questions wait as may"],
)
async def test_the_questions_of_many_tasks_are_asked_when_there_is_room_for_them(options: ServiceOptions) -> None:
    server = Server("tester", version="1", options=options)
    server.tool(task=True)(confirm)
    async with talk_to(server) as talk:
        task = LegacyTask(talk)
        await task.open()
        for _ in range(20):
            await task.start("confirm")
            await prompts(task)
        with trio.fail_after(600):
            while len(talk.service.tasks):
                for question in await prompts(task):
                    talk.answer(question, DECLINE)
                await trio.sleep(options.tasks.poll_interval)


async def test_a_session_without_a_channel_is_asked_when_it_has_one(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock, has_channel=False) as task:
        assert await prompts(task) == []
        task.talk.session.attach(task.talk.outbox)
        mock_clock.jump(60)
        assert len(await prompts(task)) == 1


async def test_tasks_result_gets_a_question_whose_channel_is_lost(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock) as task:
        assert len(await prompts(task)) == 1
        task.talk.session.attach(None)
        task.about("tasks/result")
        (question,) = await prompts(task)
        task.talk.answer(question, DECLINE)
        assert await task.status() == "completed"


async def test_another_session_of_the_owner_that_asks_for_the_result_gets_the_question(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock, principal="bob") as task, elsewhere(task) as second:
        assert len(await prompts(task)) == 1
        second.about("tasks/result")
        (question,) = await prompts(second)
        assert [message["method"] for message in task.talk.waiting()] == ["notifications/cancelled"]
        second.talk.answer(question, DECLINE)
        assert await second.status() == "completed"


async def test_a_task_whose_session_ends_while_it_asks_there_can_still_be_answered(mock_clock: MockClock) -> None:
    async with asking_task(mock_clock, principal="bob") as task, elsewhere(task) as second:
        assert len(await prompts(task)) == 1
        task.talk.session.close(CancelReason.DISCONNECT)
        await wait_all_tasks_blocked()
        second.about("tasks/result")
        assert len(await prompts(second)) == 1
