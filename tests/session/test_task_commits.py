"""Commit, then wake: clients see only stored states, and a process that has lost a task leaves it alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from crashing_store import Change, CrashingStore, Disk, sealed
from task_process import KEYS, Process, Work, record_of
from task_talk import LegacyTask, ModernTask
from trio.testing import MockClock, wait_all_tasks_blocked
from wire_terms import SERVER_BUSY

from trio_mcp import Context
from trio_mcp.session.recovery.settling import LAST_SECONDS
from trio_mcp.session.tasks.stored import SAVE_AGAIN_SECONDS
from trio_mcp.stores import StoreError


@pytest.fixture
def disk() -> Disk:
    return Disk()


class Stages(Work):
    """Its task says what it does, as the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = trio.Event()
        self.end = trio.Event()
        self.cleaned = False

    def finish(self) -> None:
        self.stage.set()
        self.end.set()

    async def order(self, ctx: Context) -> str:
        self.runs += 1
        await ctx.status("first")
        try:
            await self.stage.wait()
            await ctx.status("second")
            await self.end.wait()
        except trio.Cancelled:
            self.cleaned = True
            return "in spite of the cancel"  # noqa: ASYNC103
        return "done"


@asynccontextmanager
async def begun(
    era: type[LegacyTask], disk: Disk, work: Work, *, graceful: bool = False
) -> AsyncIterator[tuple[CrashingStore, Any]]:
    """A task that has done what it can do at once, and the store of its process."""
    process = Process(disk, work)
    async with process.task(era, graceful=graceful) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
        task.talk.waiting()
        yield process.store, task


def news(task: LegacyTask) -> list[Any]:
    return [each for each in task.talk.waiting() if "method" in each]


async def test_a_status_is_shown_and_announced_when_it_is_stored(task_era: type[LegacyTask], disk: Disk) -> None:
    work = Stages()
    async with begun(task_era, disk, work) as (store, task):
        if task_era is ModernTask:
            task.request("subscriptions/listen", notifications={"taskIds": [task.id]})
            await wait_all_tasks_blocked()
            task.talk.waiting()
        store.hang = trio.Event()
        work.stage.set()
        await wait_all_tasks_blocked()
        assert news(task) == []
        assert (await task.get())["statusMessage"] == "first"
        store.hang.set()
        await wait_all_tasks_blocked()
        assert [each["params"]["statusMessage"] for each in news(task)] == ["second"]
        assert (await task.get())["statusMessage"] == "second"


class Asking(Stages):
    """It says what it does, and asks at once."""

    async def order(self, ctx: Context) -> str:
        await ctx.status("first")
        await self.stage.wait()
        await ctx.status("half of it is done")
        return (await ctx.elicit("Go on?", bool)).action


async def test_a_question_is_shown_after_the_status_that_was_set_before_it(
    task_era: type[LegacyTask], disk: Disk
) -> None:
    work = Asking()
    async with begun(task_era, disk, work) as (store, task):
        if task_era is LegacyTask:
            task.about("tasks/result")
        store.hang = trio.Event()
        work.stage.set()
        await wait_all_tasks_blocked()
        assert news(task) == []
        seen = await task.get()
        assert (seen["statusMessage"], seen["status"]) == ("first", "working")
        store.hang.set()
        await wait_all_tasks_blocked()
        seen = await task.get()
        assert (seen["statusMessage"], seen["status"]) == ("half of it is done", "input_required")


async def test_a_question_is_asked_although_the_store_does_not_take_the_status_before_it(
    task_era: type[LegacyTask], disk: Disk
) -> None:
    work = Asking()
    async with begun(task_era, disk, work) as (store, task):
        store.failing = True
        work.stage.set()
        assert await task.status() == "input_required"
        store.failing = False


async def test_a_task_is_cancelled_while_its_question_waits_for_the_status(
    task_era: type[LegacyTask], disk: Disk
) -> None:
    work = Asking()
    async with begun(task_era, disk, work) as (store, task):
        store.hang = trio.Event()
        work.stage.set()
        await wait_all_tasks_blocked()
        task.about("tasks/cancel")
        await wait_all_tasks_blocked()
        store.hang.set()
        assert await task.status() == "cancelled"


async def test_an_outcome_is_shown_when_it_is_stored(task_era: type[LegacyTask], disk: Disk) -> None:
    work = Stages()
    async with begun(task_era, disk, work) as (store, task):
        store.hang = trio.Event()
        work.finish()
        await wait_all_tasks_blocked()
        assert await task.status() == "working"
        store.hang.set()
        assert await task.status() == "completed"


async def test_a_cancel_is_answered_when_it_is_stored_and_is_the_outcome(
    task_era: type[LegacyTask], disk: Disk
) -> None:
    work = Stages()
    async with begun(task_era, disk, work) as (store, task):
        store.hang = trio.Event()
        cancelling = task.about("tasks/cancel")
        await wait_all_tasks_blocked()
        # The work has returned meanwhile.
        assert work.cleaned
        assert [each for each in task.talk.waiting() if each.get("id") == cancelling] == []
        store.hang.set()
        assert "result" in await task.reply(cancelling)
        assert await task.status() == "cancelled"


async def test_a_cancel_of_what_is_over_already_is_answered_when_that_is_stored(
    task_era: type[LegacyTask], disk: Disk
) -> None:
    async with begun(task_era, disk, Stages()) as (store, task):
        store.hang = trio.Event()
        cancels = [task.about("tasks/cancel") for _ in range(2)]
        await wait_all_tasks_blocked()
        assert [each for each in task.talk.waiting() if each.get("id") in cancels] == []
        store.hang.set()
        await wait_all_tasks_blocked()
        assert {each.get("id") for each in task.talk.waiting()} >= set(cancels)


async def test_the_first_answer_to_a_question_counts(disk: Disk) -> None:
    async with begun(ModernTask, disk, Work()) as (store, task):
        (key,) = (await task.get())["inputRequests"]
        store.hang = trio.Event()
        for action in ("decline", "cancel"):
            task.update({key: {"action": action}})
            await wait_all_tasks_blocked()
        # It is answered, and so no question any more.
        assert "inputRequests" not in await task.get()
        store.hang.set()
        await wait_all_tasks_blocked()
        await task.answer(True)
        assert (await task.result())["content"][0]["text"] == "1 decline accept"


async def test_an_answer_that_is_repeated_is_acknowledged_when_the_first_is_stored(disk: Disk) -> None:
    async with begun(ModernTask, disk, Work()) as (store, task):
        (key,) = (await task.get())["inputRequests"]
        store.hang = trio.Event()
        answers = {key: {"action": "decline"}}
        sent = [task.update(answers) for _ in range(2)]
        await wait_all_tasks_blocked()
        assert task.talk.waiting() == []
        store.hang.set()
        await wait_all_tasks_blocked()
        assert {message.get("id") for message in task.talk.waiting()} == set(sent)


async def test_an_answer_that_the_store_does_not_keep_is_not_acknowledged_until_it_does(disk: Disk) -> None:
    async with begun(ModernTask, disk, Work()) as (store, task):
        (key,) = (await task.get())["inputRequests"]
        store.failing = True
        answers = {key: {"action": "decline"}}
        error = await task.talk.error(task.update(answers))
        assert error["code"] == SERVER_BUSY
        store.failing = False
        await task.talk.result(task.update(answers))


async def test_of_a_task_that_is_over_its_outcome_is_stored_and_nothing_else(
    task_era: type[LegacyTask], disk: Disk
) -> None:
    async with Process(disk, Work()).task(task_era) as task:
        await task.start("order")
        await task.answer(True)
        assert record_of(disk, task.id).call is not None
        assert disk.logs
        await task.answer(True)
        assert await task.status() == "completed"
        assert record_of(disk, task.id).call is None
        assert not disk.logs


async def test_a_process_that_has_lost_a_task_ends_its_work_and_leaves_the_store_alone(
    task_era: type[LegacyTask], disk: Disk
) -> None:
    """It was thought to be dead."""
    work = Stages()
    async with begun(task_era, disk, work) as (_, task):
        (key,) = [key for key in disk.records if key[0] == "task"]
        taken = record_of(disk, task.id)._replace(node="another", message="elsewhere")
        value = sealed(taken.encode(), KEYS, *key)
        disk.records[key] = disk.records[key]._replace(value=value, version=disk.records[key].version + 1)
        before = disk.records[key]
        work.stage.set()
        await wait_all_tasks_blocked()
        assert work.cleaned
        assert len(task.talk.service.tasks) == 0
        assert disk.records[key] == before
        # What is shown of it is what the store has.
        assert (await task.get())["statusMessage"] == "elsewhere"


async def test_a_task_whose_time_is_over_is_dropped_in_silence(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """No other process has it."""
    process = Process(disk, Stages())
    async with process.task(LegacyTask) as task:
        await task.start("order", ttl=1000)
        process.store.hang = trio.Event()
        await trio.sleep(2)
        disk.records.clear()
        process.store.hang.set()
        await wait_all_tasks_blocked()
        assert len(task.talk.service.tasks) == 0
        assert "another process" not in caplog.text


@pytest.mark.parametrize("cancelled", [True, False])
async def test_an_outcome_that_the_store_did_not_take_is_stored_when_it_works_again(
    task_era: type[LegacyTask], disk: Disk, mock_clock: MockClock, cancelled: bool
) -> None:
    """Otherwise the next process would go on with a task that was cancelled."""
    work = Stages()
    async with begun(task_era, disk, work) as (store, task):
        store.failing = True
        if cancelled:
            task.about("tasks/cancel")
        else:
            work.finish()
        shown = "cancelled" if cancelled else "completed"
        assert await task.status() == shown
        mock_clock.jump(SAVE_AGAIN_SECONDS)
        assert await task.status() == shown
        assert record_of(disk, task.id).outcome is None
        store.failing = False
        mock_clock.jump(SAVE_AGAIN_SECONDS)
        assert await task.status() == shown
        assert record_of(disk, task.id).outcome is not None
        # It is in memory no longer.
        assert not list(task.talk.service.tasks)


@pytest.mark.parametrize("was_made", [True, False])
@pytest.mark.parametrize("cancelled", [True, False])
async def test_an_outcome_that_the_store_did_not_take_is_written_once_more_at_the_end_of_the_server(
    task_era: type[LegacyTask], disk: Disk, monkeypatch: pytest.MonkeyPatch, cancelled: bool, was_made: bool
) -> None:
    """The next process would run a task that was cancelled, or call one lost that had ended."""
    work = Stages()
    async with begun(task_era, disk, work, graceful=True) as (store, task):
        write = store.write

        async def write_without_saying_so(changes: Sequence[Change]) -> None:
            await write(changes)
            raise StoreError("the time is over")

        if was_made:
            monkeypatch.setattr(store, "write", write_without_saying_so)
        else:
            store.failing = True
        if cancelled:
            task.about("tasks/cancel")
        else:
            work.finish()
        shown = "cancelled" if cancelled else "completed"
        await wait_all_tasks_blocked()
        assert await task.status() == shown
        store.failing = False
        monkeypatch.setattr(store, "write", write)
    assert (record_of(disk, task.id).outcome.result is None) is cancelled


async def test_a_server_ends_although_the_store_never_takes_an_outcome(task_era: type[LegacyTask], disk: Disk) -> None:
    async with begun(task_era, disk, Stages(), graceful=True) as (store, task):
        store.failing = True
        task.about("tasks/cancel")
        await wait_all_tasks_blocked()
        store.failing = False
        store.hang = trio.Event()
        began = trio.current_time()
    assert trio.current_time() - began <= 2 * LAST_SECONDS
