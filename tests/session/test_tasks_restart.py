"""Tasks of a server with a durable store whose process ends: what the next one makes of them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from crashing_store import CrashingStore, Disk
from talk import talk_to
from task_talk import TASK_ERAS, LegacyTask, ModernTask
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, Server
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.session import ServiceOptions
from trio_mcp.storage import Put, Record, StoreTimeout

KEYS = KeyRing.random()


@pytest.fixture(params=TASK_ERAS, ids=lambda era: era.era)
def era(request: pytest.FixtureRequest) -> type[LegacyTask]:
    return request.param


class Work:
    def __init__(self) -> None:
        self.charged = 0
        self.runs = 0

    async def order(self, ctx: Context) -> str:
        self.runs += 1
        receipt = await ctx.step("charge", self.charge)
        answer = await ctx.elicit("Keep it?", bool)
        again = await ctx.elicit("Really?", bool)
        return f"{receipt} {answer.action} {again.action}"

    async def quick(self) -> str:
        return "done"

    def charge(self) -> int:
        self.charged += 1
        return self.charged


class Process:
    """One process of a server with a store that keeps what was committed."""

    def __init__(self, disk: Disk, work: Work, resume: str = "replay", keys: KeyRing = KEYS) -> None:
        self.store = CrashingStore(disk)
        self.server = Server("tester", version="1", options=ServiceOptions(keys=keys, store=self.store))
        self.server.tool(task=True, resume=resume)(work.order)  # type: ignore[call-overload]
        self.server.tool(task=True)(work.quick)

    @asynccontextmanager
    async def task(self, era: type[LegacyTask], task_id: str = "") -> AsyncIterator[LegacyTask]:
        async with talk_to(self.server, principal="alice") as talk:
            task = era(talk)
            task.id = task_id
            await task.open()
            await wait_all_tasks_blocked()
            yield task
            self.store.crash()


async def test_a_task_that_waits_goes_on_in_the_next_process(era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work).task(era) as task:
        await task.start("order")
        await task.answer(True)
    for other in TASK_ERAS:
        assert work.charged == 1
        async with Process(disk, work).task(other, task.id) as again:
            assert await again.status() == "input_required"
    async with Process(disk, work).task(era, task.id) as again:
        await again.answer(True)
        assert (await again.result())["content"][0]["text"] == "1 accept accept"
    assert (work.charged, work.runs) == (1, 4)


async def test_a_finished_task_is_there_after_a_restart(era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work).task(era) as task:
        await task.start("quick")
        await wait_all_tasks_blocked()
    async with Process(disk, work).task(era, task.id) as again:
        assert await again.status() == "completed"
        assert (await again.result())["content"][0]["text"] == "done"


async def test_a_task_that_must_not_run_again_has_failed_with_the_cause(era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work, "parked").task(era) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
    async with Process(disk, work, "parked").task(era, task.id) as again:
        assert await again.status() == "failed"
        outcome = await again.outcome()
        assert "restarted" in outcome["error"]["message"]
    assert work.runs == 1


async def test_a_step_that_may_have_run_ends_the_task(era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    work.charge = process.store.crash  # type: ignore[assignment]
    async with process.task(era) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
    async with Process(disk, Work()).task(era, task.id) as again:
        assert await again.status() == "failed"
        assert "'charge' may have run" in str((await again.outcome())["error"])


async def test_only_one_of_several_processes_takes_a_task_over() -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work).task(ModernTask) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(Process(disk, work).task(ModernTask, task.id))
    assert work.runs == 2


async def test_a_living_process_keeps_its_tasks(era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work).task(era) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
        async with Process(disk, work).task(ModernTask, task.id) as elsewhere:
            assert await elsewhere.status() == "working"
            update = elsewhere.request("tasks/update", taskId=task.id, inputResponses={})
            assert "another process" in (await elsewhere.reply(update))["error"]["message"]
        assert work.runs == 1


async def test_nobody_hears_of_a_task_before_it_is_stored(era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    async with process.task(era) as task:
        process.store.hang = trio.Event()
        creating = task.create("order")
        await wait_all_tasks_blocked()
        assert task.talk.waiting() == []
        assert work.runs == 0
        process.store.hang.set()
        assert "result" in await task.reply(creating)


async def test_nothing_remains_of_a_task_that_cannot_be_stored(era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    async with process.task(era) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
        process.store.failing = True
        reply = await task.reply(task.create("order"))
        assert reply["error"]["code"] == -32000
        assert (len(task.talk.service.tasks), work.runs) == (1, 1)
        process.store.failing = False
        assert await task.status() == "input_required"


async def test_an_outcome_that_cannot_be_stored_is_shown_from_memory(era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    async with process.task(era) as task:
        await task.start("order")
        await task.answer(True)
        await wait_all_tasks_blocked()
        process.store.on_write = fail_tasks
        await task.answer(True)
        assert await task.status() == "completed"


def fail_tasks(changes: Any) -> None:
    from trio_mcp.storage import StoreError

    if any(isinstance(change, Put) and change.record.kind == "task" for change in changes):
        raise StoreError("the disk is full")


async def test_a_poisoned_record_is_set_aside_and_the_others_go_on() -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work).task(ModernTask) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
    disk.records["task", "0"] = Record("task", "0", b"poison", version=1)
    async with Process(disk, work).task(ModernTask, task.id) as again:
        assert await again.status() == "input_required"


async def test_without_its_record_the_owner_alone_is_told_that_the_server_was_restarted() -> None:
    work = Work()
    async with Process(Disk(), work).task(ModernTask) as task:
        await task.start("order")
    process = Process(Disk(), work)
    async with process.task(ModernTask, task.id) as again:
        assert await again.status() == "failed"
        assert "restarted" in (await again.get())["error"]["message"]
    async with talk_to(Process(Disk(), work).server, principal="bob") as talk:
        stranger = ModernTask(talk)
        stranger.id = task.id
        assert (await stranger.reply(stranger.about("tasks/get")))["error"]["code"] == -32602
    async with Process(Disk(), work, keys=KeyRing.random()).task(ModernTask, task.id) as other_keys:
        assert (await other_keys.reply(other_keys.about("tasks/get")))["error"]["code"] == -32602


async def test_no_header_and_no_token_is_stored() -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work).task(ModernTask) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
    stored = b"".join(record.value for record in disk.records.values())
    assert b"alice" not in stored
    assert task.id.encode() not in stored


async def test_a_write_that_was_made_after_its_time_is_no_conflict_for_the_next(era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    write, late = process.store.write, [True]

    async def write_late(changes: Any) -> None:
        await write(changes)
        if late and any(isinstance(change, Put) and change.record.version for change in changes):
            late.clear()
            raise StoreTimeout("it took too long")

    async with process.task(era) as task:
        await task.start("order")
        process.store.write = write_late  # type: ignore[method-assign]
        task.talk.service.tasks.set_message(next(iter(task.talk.service.tasks)), "late")
        await task.answer(True)
        await task.answer(True)
        assert await task.status() == "completed"
    async with Process(disk, work).task(era, task.id) as again:
        assert await again.status() == "completed"
