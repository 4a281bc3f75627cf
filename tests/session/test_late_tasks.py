"""Tools that ask in the call itself and become a task then: `task="later"` and `ctx.become_task()`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from crashing_store import CrashingStore, Disk
from naming import naming, unnamed
from peer import EVERYTHING, Json
from talk import Talk, session_with, talk_to
from task_process import KEYS
from task_talk import DECLARES, LegacyTask, ModernTask
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, Server, ServiceOptions, TaskOptions
from trio_mcp.stores import StoreFull


class Work:
    def __init__(self) -> None:
        self.charged = 0
        self.go_on = trio.Event()

    async def greet(self, ctx: Context) -> str:
        name = await ctx.elicit.strict("Your name?", str)
        await ctx.step("charge", self.charge)
        await ctx.become_task()
        await self.go_on.wait()
        return f"Hello, {name}!"

    def charge(self) -> None:
        self.charged += 1

    async def branching(self, ctx: Context) -> str:
        async def waits(_ctx: Context) -> None:
            await self.go_on.wait()

        async def becomes(ctx: Context) -> None:
            await ctx.become_task()

        await ctx.branch_all(waits, becomes)
        return "never"


def serving(work: Work, **options: Any) -> Server:
    server = Server("tester", version="1", options=ServiceOptions(keys=KEYS, **options))
    server.tool(task="later", resume="replay")(work.greet)
    server.tool(task="later", resume="replay")(work.branching)
    return server


async def became(talk: Talk) -> ModernTask:
    """Answer the question of the call; the task that it becomes then."""
    asked = await talk.round(talk.leg("greet", capabilities=DECLARES))
    assert "taskId" not in asked.questions
    task = ModernTask(talk)
    created = task.created(await task.reply(asked.retry("Ann", capabilities=DECLARES)))
    assert "requestState" not in created
    task.id = created["taskId"]
    return task


async def test_a_caller_that_takes_no_task_waits_for_the_result() -> None:
    work = Work()
    work.go_on.set()
    async with talk_to(serving(work)) as talk:
        asked = await talk.round(talk.leg("greet"))
        assert await talk.text(asked.retry("Ann")) == "Hello, Ann!"
    assert work.charged == 1


async def test_a_caller_of_2025_11_25_decides_with_its_request() -> None:
    work = Work()
    work.go_on.set()
    async with session_with(serving(work), capabilities=EVERYTHING) as talk:
        (greet, _) = (await talk.result(talk.request("tools/list")))["tools"]
        assert greet["execution"] == {"taskSupport": "optional"}
        created = await talk.result(talk.request("tools/call", {"name": "greet", "arguments": {}, "task": {}}))
        assert created["task"]["status"] == "working"


async def test_a_call_that_cannot_become_a_task_fails_and_nothing_remains() -> None:
    async with talk_to(serving(Work(), tasks=TaskOptions(open=1))) as talk:
        await became(talk)
        asked = await talk.round(talk.leg("greet", capabilities=DECLARES))
        assert "TaskOptions.open" in await talk.failure(asked.retry("Bob", capabilities=DECLARES))
        assert len(talk.service.tasks) == 1


async def test_it_becomes_no_task_while_a_branch_runs(caplog: pytest.LogCaptureFixture) -> None:
    async with talk_to(serving(Work())) as talk:
        await talk.failure(talk.leg("branching", capabilities=DECLARES))
        assert "become_task" in caplog.text
        assert len(talk.service.tasks) == 0


async def test_after_a_crash_the_task_goes_on_and_does_no_step_again() -> None:
    disk, work = Disk(), Work()
    store = CrashingStore(disk)
    async with talk_to(serving(work, store=store)) as talk:
        task = await became(talk)
        store.crash()
    work.go_on.set()
    async with talk_to(serving(work, store=CrashingStore(disk))) as talk:
        await wait_all_tasks_blocked()
        again = ModernTask(talk)
        again.id = task.id
        assert (await again.result())["content"][0]["text"] == "Hello, Ann!"
    assert work.charged == 1


async def test_a_store_that_fails_a_task_fails_the_call_without_its_message() -> None:
    store = CrashingStore(Disk())
    async with talk_to(serving(Work(), store=store)) as talk:
        asked = await talk.round(talk.leg("greet", capabilities=DECLARES))
        store.on_write = fails_for_tasks(store)
        problem = await talk.failure(asked.retry("Ann", capabilities=DECLARES))
        assert unnamed(problem, "store", "again") == []
        assert "disk" not in problem
        assert (talk.waiting(), len(talk.service.tasks)) == ([], 0)


def fails_for_tasks(store: CrashingStore) -> Callable[[Any], None]:
    def fail(changes: Any) -> None:
        if any(getattr(getattr(change, "record", None), "kind", "") == "task" for change in changes):
            raise StoreFull("the disk is full")

    return fail


@pytest.mark.parametrize("is_idempotent", [True, False])
@pytest.mark.parametrize("is_durable", [True, False])
@pytest.mark.parametrize("capabilities", [DECLARES, EVERYTHING])
async def test_no_step_becomes_a_task(*, is_idempotent: bool, is_durable: bool, capabilities: Json) -> None:
    """The error is the same whatever the store, the step and the caller are, so that the first test of an author finds it."""
    done = []

    async def charge(ctx: Context) -> None:
        done.append("charge")
        await ctx.become_task()

    server = Server("tester", options=ServiceOptions(keys=KEYS, store=CrashingStore(Disk()) if is_durable else None))

    @server.tool(task="later", resume="replay")
    async def sell(ctx: Context) -> str:
        with pytest.raises(RuntimeError, match="step"):
            await ctx.step("charge", charge, ctx, idempotent=is_idempotent)
        return "sold"

    async with talk_to(server) as talk:
        assert await talk.text(talk.leg("sell", capabilities=capabilities)) == "sold"
        assert len(talk.service.tasks) == 0
    assert done == ["charge"]


async def test_no_step_of_a_task_and_of_a_legacy_call_becomes_one() -> None:
    server = Server("tester")

    @server.tool(task="later", resume="replay")
    async def sell(ctx: Context) -> str:
        with pytest.raises(RuntimeError, match="step"):
            await ctx.step("charge", ctx.become_task)
        await ctx.become_task()
        return "sold"

    async with session_with(server, capabilities=EVERYTHING) as talk:
        assert await talk.text(talk.call("sell")) == "sold"
        task = LegacyTask(talk)
        await task.start("sell")
        assert (await task.result())["content"][0]["text"] == "sold"


async def test_after_a_step_that_failed_the_call_becomes_a_task() -> None:
    server = Server("tester")

    @server.tool(task="later", resume="replay")
    async def sell(ctx: Context) -> str:
        with suppress(ZeroDivisionError):
            await ctx.step("charge", lambda: 1 // 0)
        await ctx.become_task()
        return "sold"

    async with talk_to(server) as talk:
        task = ModernTask(talk)
        task.id = task.created(await task.reply(talk.leg("sell", capabilities=DECLARES)))["taskId"]
        assert (await task.result())["content"][0]["text"] == "sold"


async def tool(ctx: Context) -> None:
    await ctx.become_task()


@pytest.mark.parametrize(
    ("task", "capabilities", "named"),
    [
        (True, DECLARES, None),
        ("required", DECLARES, None),
        (True, EVERYTHING, 'task="later"'),
        (False, DECLARES, "task="),
    ],
    ids=["a task from the beginning", "always a task", "for a caller that takes none", "never a task"],
)
async def test_a_tool_that_does_not_say_so_becomes_no_task(
    task: Any, capabilities: Json, named: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The author of one that is a task from the beginning may think that its questions are asked in the call."""
    server = Server("tester")
    server.tool(task=task)(tool)
    async with talk_to(server) as talk:
        if named is None:
            started = ModernTask(talk)
            await started.start("tool")
            assert (await started.result())["isError"]
        else:
            await talk.failure(talk.leg("tool", capabilities=capabilities))
            assert named in caplog.text


def test_a_tool_that_becomes_a_task_must_be_replayable() -> None:
    with pytest.raises(ValueError, match=naming("later", "resume=", "replay")):
        Server("tester").tool(task="later")(tool)
    with pytest.raises(ValueError, match=naming("later", "resume=", "replay")):
        Server("tester").tool(task="later", resume="parked", annotations={"idempotentHint": True})(tool)
    Server("tester").tool(task="later", annotations={"idempotentHint": True})(tool)


@pytest.mark.parametrize("durable", [False, True])
async def test_a_handoff_becomes_a_task_in_its_client_phase_and_its_other_phases_run_once(durable: bool) -> None:
    log: list[str] = []

    async def client(_value: str, ctx: Context) -> str:
        name = await ctx.elicit.strict("Your name?", str)
        await ctx.become_task()
        return name

    async def after(_value: str, name: str, ctx: Context) -> str:
        with pytest.raises(TypeError, match=naming("client")):
            await ctx.become_task()
        log.append("after")
        return f"Hello, {name}!"

    async def undo(_value: str, _ctx: Context) -> None:
        log.append("undo")

    options = ServiceOptions(keys=KEYS, store=CrashingStore(Disk()) if durable else None)
    server = Server("tester", version="1", options=options)

    @server.handoff_tool(client=client, after=after, on_cancel=undo, task="later")
    async def greet(ctx: Context) -> str:
        with pytest.raises(TypeError, match=naming("client")):
            await ctx.become_task()
        log.append("before")
        return "held"

    async with talk_to(server) as talk:
        task = await became(talk)
        assert (await task.result())["content"][0]["text"] == "Hello, Ann!"
    assert log == ["before", "after"]


def test_a_wrong_choice_of_task_names_all_that_there_are() -> None:
    with pytest.raises(ValueError, match=naming("True", "False", "required", "later", "requred")):
        Server("x").tool(task="requred")(Work().greet)  # type: ignore[call-overload]


# tools with `limit=`: a task that goes on was admitted before, and waits for its place


async def asking(ctx: Context) -> str:
    for number in range(20):
        await ctx.step(f"step {number}", int)
    return (await ctx.elicit("Sure?", bool)).action


async def selling(ctx: Context) -> str:
    await ctx.become_task()
    await trio.lowlevel.checkpoint()
    return "sold"


async def test_tasks_that_wait_for_their_users_survive_a_restart_however_many_there_are() -> None:
    disk, tasks = Disk(), list[ModernTask]()

    def server(store: CrashingStore) -> Server:
        server = Server("tester", options=ServiceOptions(keys=KEYS, store=store))
        server.tool(task=True, resume="replay", limit=1)(asking)
        return server

    store = CrashingStore(disk)
    async with talk_to(server(store)) as talk:
        for _ in range(3):
            tasks.append(ModernTask(talk))
            await tasks[-1].start("asking")
            assert await tasks[-1].status() == "input_required"
        store.crash()
    async with talk_to(server(CrashingStore(disk))) as talk:
        for task in tasks:
            task.talk = talk
            assert await task.status() == "input_required"
        for task in tasks:
            await task.answer(True)
            assert await task.status() == "completed"


@pytest.mark.parametrize("turn", range(4))
async def test_a_call_that_becomes_a_task_leaves_its_place_to_it(turn: int) -> None:
    """However Trio orders the two."""
    server = Server("tester", options=ServiceOptions(keys=KEYS))
    server.tool(task="later", resume="replay", limit=1)(selling)
    async with talk_to(server) as talk:
        for _ in range(4):
            task = ModernTask(talk)
            task.id = task.created(await task.reply(talk.leg("selling", capabilities=DECLARES)))["taskId"]
            await wait_all_tasks_blocked()
            assert (await task.result())["content"][0]["text"] == "sold"
