"""Tasks of a server with a durable store whose process ends: what the next one makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio
from crashing_store import Change, CrashingStore, Disk, plain_text, sealed
from talk import talk_to
from task_process import KEYS, Process, Work, left, record_of
from task_talk import TASK_ERAS, LegacyTask, ModernTask
from trio.testing import wait_all_tasks_blocked
from wire_terms import SERVER_BUSY

from trio_mcp import Context, TaskOptions
from trio_mcp.session import KeyRing, Peer
from trio_mcp.session.envelope import Caller
from trio_mcp.session.tasks.adoption import ADOPT_AGAIN_SECONDS
from trio_mcp.session.tasks.elsewhere import CANCEL_SECONDS
from trio_mcp.session.tasks.record import storage_key
from trio_mcp.stores import Put, Record, StoreTimeout


async def test_a_task_that_waits_goes_on_in_the_next_process(task_era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work).task(task_era) as task:
        await task.start("order")
        await task.answer(True)
    for other in TASK_ERAS:
        assert work.charged == 1
        async with Process(disk, work).task(other, task.id) as again:
            assert await again.status() == "input_required"
    async with Process(disk, work).task(task_era, task.id) as again:
        await again.answer(True)
        assert (await again.result())["content"][0]["text"] == "1 accept accept"
    assert (work.charged, work.runs) == (1, 4)


class Staged(Work):
    """Its task says how far it is."""

    async def order(self, ctx: Context) -> str:
        await ctx.status("first")
        await ctx.step("charge", self.charge)
        await ctx.status("second")
        await ctx.elicit("Keep it?", bool)
        await ctx.status("third")
        await ctx.elicit("Really?", bool)
        return "done"


async def test_a_replay_does_not_take_a_status_back(task_era: type[LegacyTask]) -> None:
    disk, work = Disk(), Staged()
    async with Process(disk, work).task(task_era) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
        assert (await task.get())["statusMessage"] == "second"
    process, shown = Process(disk, work), set[str | None]()
    process.store.on_write = lambda _changes: shown.add(record_of(disk, task.id).message)
    async with process.task(task_era, task.id) as again:
        assert (await again.get())["statusMessage"] == "second"
        await again.answer(True)
        assert (await again.get())["statusMessage"] == "third"
    # The last one is that of the record with the second question.
    assert shown == {"second", "third"}


async def test_a_task_that_must_not_run_again_has_failed_with_the_cause(task_era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    task = await left(disk, work, task_era, "parked")
    async with Process(disk, work, "parked").task(task_era, task.id) as again:
        assert await again.status() == "failed"
        assert "restarted" in (await again.outcome())["error"]["message"]
    assert work.runs == 1


async def test_a_step_that_may_have_run_ends_the_task(task_era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    work.charge = process.store.crash  # type: ignore[assignment]
    async with process.task(task_era) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
    async with Process(disk, Work()).task(task_era, task.id) as again:
        assert await again.status() == "failed"
        assert "'charge' may have run" in str((await again.outcome())["error"])


@pytest.mark.parametrize("fails", ["list", "claim", "late claim", "log"])
async def test_a_store_that_fails_at_the_start_is_tried_again(fails: str) -> None:
    disk, work = Disk(), Work()
    task = await left(disk, work)
    process = Process(disk, work)
    process.server.options = replace(process.server.options, tasks=TaskOptions(open_per_owner=1))
    fail_once(process.store, fails)
    async with process.task(ModernTask, task.id) as again:
        await trio.sleep(10)
        assert await again.status() == "input_required"
        await again.answer(True)
        await again.answer(True)
        assert (await again.result())["content"][0]["text"] == "1 accept accept"
        # An attempt that failed is not counted as an open task.
        assert (await again.start("quick"))["status"]
    assert (work.charged, work.runs) == (1, 2)


@pytest.mark.parametrize("fails", ["claim", "late claim"])
async def test_a_cancel_that_comes_before_the_task_is_taken_over_is_answered_when_it_is(fails: str) -> None:
    disk, work = Disk(), Work()
    task = await left(disk, work)
    process = Process(disk, work)
    fail_once(process.store, fails)
    async with process.task(ModernTask, task.id) as again:
        cancel = again.about("tasks/cancel")
        await trio.sleep(ADOPT_AGAIN_SECONDS - 1)
        assert again.talk.waiting() == []
        with trio.fail_after(CANCEL_SECONDS - ADOPT_AGAIN_SECONDS):
            assert (await again.reply(cancel))["result"]
        assert await again.status() == "cancelled"
    assert (work.charged, work.runs) == (1, 2)


async def test_a_question_is_answered_between_the_end_of_a_process_and_the_take_over_of_its_task() -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    async with process.task(ModernTask, graceful=True) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
        make_cancelled_writes(process.store)
    process = Process(disk, work)
    fail_once(process.store, "claim")
    async with process.task(ModernTask, task.id) as again:
        await again.answer(True)
        await trio.sleep(10)
        await again.answer(True)
        assert (await again.result())["content"][0]["text"] == "1 accept accept"
    assert (work.charged, work.runs) == (1, 2)


def make_cancelled_writes(store: CrashingStore) -> None:
    """Let the store make a write also if its task is cancelled meanwhile, as a store over a network may."""
    work = store.write

    async def write(changes: Sequence[Change]) -> None:
        with trio.CancelScope(shield=True):
            await work(changes)

    store.write = write  # type: ignore[method-assign]


def fail_once(store: CrashingStore, what: str) -> None:
    """Let the first list of tasks, the first claim of one, or the first read of its log fail."""
    method = {"list": "list", "log": "entries"}.get(what, "write")
    work, calls = getattr(store, method), 0

    async def failing(*args: Any, **options: Any) -> Any:
        nonlocal calls
        place = getattr(args[0][0], "record", args[0][0]).kind if method == "write" else args[0]
        is_meant = place in ("task", "call")
        calls += is_meant
        if not is_meant or calls > 1:
            return await work(*args, **options)
        if what == "late claim":
            await work(*args, **options)
        raise StoreTimeout("the disk hangs")

    setattr(store, method, failing)


async def test_a_task_is_announced_only_after_it_is_stored(task_era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    async with process.task(task_era) as task:
        process.store.hang = trio.Event()
        creating = task.create("order")
        await wait_all_tasks_blocked()
        assert task.talk.waiting() == []
        assert work.runs == 0
        process.store.hang.set()
        assert "result" in await task.reply(creating)


async def test_nothing_remains_of_a_task_that_cannot_be_stored(task_era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    async with process.task(task_era) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
        process.store.failing = True
        assert (await task.reply(task.create("order")))["error"]["code"] == -32000
        assert (len(task.talk.service.tasks), work.runs) == (1, 1)
        process.store.failing = False
        assert await task.status() == "input_required"


async def test_a_poisoned_record_is_set_aside_and_the_others_go_on() -> None:
    disk, work = Disk(), Work()
    task = await left(disk, work)
    # Before the other, in the order of their keys; it opens with the keys, and is nothing that this version wrote.
    poison = sealed(b"poison", KEYS, "task", "0")
    disk.records["task", "0"] = Record("task", "0", poison, version=1)
    async with Process(disk, work).task(ModernTask, task.id) as again:
        assert await again.status() == "input_required"


async def test_without_its_record_only_the_owner_learns_that_the_server_was_restarted() -> None:
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


async def test_no_header_and_no_token_is_stored_but_who_was_authenticated() -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work).task(ModernTask) as task:
        caller = Caller("alice", ["reports:write"], {"team": "green"})
        task.talk.peer = Peer("alice", {"authorization": "Bearer secret", "cookie": "secret"}, known_caller=caller)
        await task.start("order")
        await wait_all_tasks_blocked()
    written = plain_text(disk, KEYS)
    for known in (b"alice", b"reports:write", b"green"):
        assert known in written
    assert b"secret" not in written
    stored = b"".join(record.value for record in disk.records.values())
    assert b"alice" not in stored
    assert task.id.encode() not in stored


class Asking(Work):
    """Its tool says who called it."""

    async def order(self, ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        return f"{ctx.caller.principal} {sorted(ctx.caller.scopes)} {ctx.caller.claims}"


async def test_the_work_knows_after_a_restart_who_was_authenticated() -> None:
    disk, work = Disk(), Asking()
    async with Process(disk, work).task(ModernTask) as task:
        task.talk.peer = Peer("alice", known_caller=Caller("alice", ["write", "read"], {"team": "green"}))
        await task.start("order")
        await wait_all_tasks_blocked()
    async with Process(disk, work).task(ModernTask, task.id) as again:
        await again.answer(True)
        assert (await again.result())["content"][0]["text"] == "alice ['read', 'write'] {'team': 'green'}"


async def test_a_write_that_was_made_after_its_time_is_no_conflict_for_the_next(task_era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    write, late = process.store.write, [True]

    async def write_late(changes: Any) -> None:
        await write(changes)
        if late and any(isinstance(change, Put) and change.record.version for change in changes):
            late.clear()
            raise StoreTimeout("it took too long")

    async with process.task(task_era) as task:
        await task.start("order")
        process.store.write = write_late  # type: ignore[method-assign]
        task.talk.service.tasks.set_message(next(iter(task.talk.service.tasks)), "late")
        await task.answer(True)
        await task.answer(True)
        assert await task.status() == "completed"
    async with Process(disk, work).task(task_era, task.id) as again:
        assert await again.status() == "completed"


# what the store has, and this process does not work on


async def test_an_id_whose_time_is_over_is_as_unknown_as_any_other(task_era: type[LegacyTask]) -> None:
    """Also one of an earlier process, of whose task the store has nothing any more."""
    async with Process(Disk(), Work()).task(task_era) as task:
        await task.start("quick", ttl=1_000)
        # What is not stored yet takes time as the process ends.
        await wait_all_tasks_blocked()
        seconds = task.talk.service.tasks.options.granted_ttl(1_000 if task_era is LegacyTask else None)
    process = Process(Disk(), Work())
    async with process.task(task_era, task.id) as again:
        assert await again.status() == "failed"
        clock = again.talk.service.tasks.clock
        again.talk.service.tasks.stored._clock = lambda: clock() + seconds + 1  # noqa: SLF001
        over = (await again.reply(again.about("tasks/get")))["error"]
        again.id = "unknown"
        assert (await again.reply(again.about("tasks/get")))["error"] == over


async def test_of_two_processes_that_claim_a_task_at_once_one_runs_it() -> None:
    disk, work = Disk(), Work()
    task = await left(disk, work)
    process = Process(disk, work)

    def be_slower(_changes: Any) -> None:
        # The other one has put the record meanwhile.
        (key,) = [key for key in disk.records if key[0] == "task"]
        disk.records[key] = disk.records[key]._replace(version=disk.records[key].version + 1)

    process.store.on_write = be_slower
    async with process.task(ModernTask, task.id) as again:
        assert len(again.talk.service.tasks) == 0
    assert work.runs == 1


async def test_a_poisoned_record_is_left_out_of_the_list_and_lost(caplog: pytest.LogCaptureFixture) -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work).task(LegacyTask) as task:
        good, poisoned = [(await task.start("quick"))["taskId"] for _ in range(2)]
        await wait_all_tasks_blocked()
    key = ("task", storage_key(poisoned))
    async with Process(disk, work).task(LegacyTask, poisoned) as again:
        # What opens with the keys, and is nothing that this version wrote.
        poison = sealed(b'{"version":2,"secret":1}', KEYS, *key)
        disk.records[key] = disk.records[key]._replace(value=poison)
        listed = (await again.reply(again.request("tasks/list")))["result"]["tasks"]
        assert [each["taskId"] for each in listed] == [good]
        assert await again.status() == "failed"
        # And what does not open at all.
        disk.records[key] = disk.records[key]._replace(value=b"poison")
        assert await again.status() == "failed"
    assert "set aside" in caplog.text
    assert "secret" not in caplog.text


async def test_a_store_that_fails_a_request_is_an_error_to_try_again_after(task_era: type[LegacyTask]) -> None:
    disk, work = Disk(), Work()
    process = Process(disk, work)
    async with process.task(task_era) as task:
        await task.start("quick")
        await wait_all_tasks_blocked()
        process.store.failing = True
        error = (await task.reply(task.about("tasks/get")))["error"]
        assert (error["code"], "disk" in error["message"]) == (-32000, False)
        if task_era is LegacyTask:
            assert (await task.reply(task.request("tasks/list")))["error"]["code"] == -32000


@pytest.mark.parametrize("held", ["the log is read", "the body runs"])
async def test_an_answer_that_comes_before_its_question_is_asked_again_waits_for_it(held: str) -> None:
    disk, work = Disk(), Work()
    async with Process(disk, work).task(ModernTask) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
        (key,) = (await task.get())["inputRequests"]
    process, go_on = Process(disk, work), trio.Event()
    if held == "the body runs":
        work.may_ask = go_on
    else:
        process.store.may_read_logs = go_on
    async with process.task(ModernTask, task.id) as again:
        answers = {key: {"action": "accept", "content": {"value": True}}}
        update = again.update(answers)
        await wait_all_tasks_blocked()
        go_on.set()
        assert "result" in await again.reply(update)
        await again.answer(True)
        assert (await again.result())["content"][0]["text"] == "1 accept accept"


async def test_an_answer_to_what_is_never_asked_again_is_refused_after_a_time_and_ignored_once_the_task_waits() -> None:
    disk, work = Disk(), Work()
    task = await left(disk, work)
    work.may_ask = trio.Event()
    answers = {"other": {"action": "accept", "content": {"value": True}}}
    async with Process(disk, work).task(ModernTask, task.id) as again:
        reply = await again.reply(again.update(answers))
        assert reply["error"]["code"] == SERVER_BUSY
        work.may_ask.set()
        await wait_all_tasks_blocked()
        assert "result" in await again.reply(again.update(answers))
