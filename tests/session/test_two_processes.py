"""Two processes that live at the same time and share a store: what a client gets from the one that it did not begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import trio
from crashing_store import CrashingStore, Disk, sealed
from peer import EVERYTHING
from shared_disk import Shop, yes
from talk import accept, talk_to
from task_process import KEYS, Process, Work
from task_talk import LegacyTask, ModernTask
from trio.testing import wait_all_tasks_blocked
from wire_terms import INTERNAL_ERROR, INVALID_PARAMS, SERVER_BUSY

from trio_mcp import Context, Server
from trio_mcp.session import ServiceOptions
from trio_mcp.session.calls.directory import MOST_LEGS, Unreached
from trio_mcp.session.tasks.mail import MAIL_KIND
from trio_mcp.session.tasks.record import storage_key
from trio_mcp.stores import Append, Record, Remove
from trio_mcp.types import RequestId

# tasks of a process that ends


async def test_while_all_processes_live_none_reads_the_tasks_again() -> None:
    disk, work = Disk(), Work()
    first, second = Process(disk, work), Process(disk, work)
    listed: list[str] = []
    async with first.task(ModernTask) as task, second.task(ModernTask):
        await task.start("order")
        await trio.sleep(3)
        work_of = second.store.list

        async def note(kind: str, **options: object) -> object:
            listed.append(kind)
            return await work_of(kind, **options)  # type: ignore[arg-type]

        second.store.list = note  # type: ignore[assignment, method-assign]
        await trio.sleep(10)
    assert set(listed) == {"node"}


async def test_the_tasks_of_a_process_that_was_taken_for_dead_are_taken_over_again_when_it_ends() -> None:
    disk, work = Disk(), Work()
    first, second = Process(disk, work), Process(disk, work)
    async with first.task(ModernTask) as task, second.task(ModernTask) as elsewhere:
        first.store.lapse()
        await trio.sleep(3)
        await first.store.join(first.store._node)  # noqa: SLF001
        await trio.sleep(3)
        await task.start("order")
        elsewhere.id = task.id
        first.store.crash()
        await trio.sleep(3)
        assert await elsewhere.status() == "input_required"
    assert work.runs == 2


# servers of one name and one store whose tools differ, and processes that never were


def other_tools(disk: Disk) -> tuple[CrashingStore, Server]:
    """A process of the same server, without its tools."""
    store = CrashingStore(disk)
    server = Server("tester", version="1", options=ServiceOptions(keys=KEYS, store=store))
    server.tool(task=True)(page)
    return store, server


async def page() -> str:
    return "page"


async def test_a_process_without_the_tool_of_a_call_refuses_it_and_the_other_one_goes_on_with_it() -> None:
    disk, work = Disk(), Work()
    first, (_, server) = Process(disk, work), other_tools(disk)
    async with talk_to(first.server) as here, talk_to(server) as elsewhere:
        asked = await here.round(here.leg("order", capabilities=EVERYTHING))
        assert (await elsewhere.error(yes(asked, elsewhere)))["code"] == INVALID_PARAMS
        again = await here.round(yes(asked, here))
        assert (await elsewhere.error(yes(again, elsewhere)))["code"] == INVALID_PARAMS
        assert await here.text(yes(again, here)) == "1 accept accept"
    assert work.runs == 1


async def test_a_process_without_the_tool_of_a_task_shows_it_and_takes_its_answers() -> None:
    disk, work = Disk(), Work()
    first, (_, server) = Process(disk, work), other_tools(disk)
    async with first.task(ModernTask) as task, talk_to(server, principal="alice") as talk:
        await task.start("order")
        await wait_all_tasks_blocked()
        elsewhere = ModernTask(talk)
        elsewhere.id = task.id
        assert await elsewhere.status() == "input_required"
        for _ in range(2):
            await elsewhere.answer(True)
        assert (await elsewhere.result())["content"][0]["text"] == "1 accept accept"


async def test_a_task_that_is_left_to_a_process_without_its_tool_fails_and_says_so() -> None:
    disk, work = Disk(), Work()
    first, (_, server) = Process(disk, work), other_tools(disk)
    async with first.task(ModernTask) as task, talk_to(server, principal="alice") as talk:
        await task.start("order")
        await wait_all_tasks_blocked()
        first.store.crash()
        await trio.sleep(3)
        elsewhere = ModernTask(talk)
        elsewhere.id = task.id
        found = await elsewhere.get()
        assert found["status"] == "failed"
        assert "order" in found["error"]["message"]


async def test_a_state_of_a_process_that_this_store_never_had_is_answered_at_once() -> None:
    there, here = Form(), Form()
    async with there.process() as (_, first), here.process() as (_, second):
        asked = await first.round(first.leg("order"))
        assert (await second.result(yes(asked, second)))["isError"]
    assert here.done == []


async def test_a_replayable_call_of_a_process_that_this_store_never_had_goes_on() -> None:
    there, here = Form("replay"), Form("replay")
    async with there.process() as (_, first), here.process() as (_, second):
        asked = await first.round(first.leg("order"))
        assert await second.text(yes(asked, second)) == "accept"


# the result of a task of another process (2025-11-25)


@asynccontextmanager
async def legacy_pair(work: Work) -> AsyncIterator[tuple[CrashingStore, CrashingStore, LegacyTask, LegacyTask]]:
    """The stores of a process that works on a task and of another one, and the task as a client at each of them has it."""
    disk = Disk()
    first, second = Process(disk, work), Process(disk, work)
    async with first.task(LegacyTask) as task, second.task(LegacyTask) as elsewhere:
        await task.start("order")
        await wait_all_tasks_blocked()
        elsewhere.id = task.id
        yield first.store, second.store, task, elsewhere


async def asked(task: LegacyTask) -> Any:
    """Wait for the next question; return it."""
    while True:
        message = await task.talk.receive()
        if message.get("method") == "elicitation/create":
            return message


async def test_the_result_of_a_task_is_waited_for_at_another_process_which_asks_its_questions() -> None:
    work = Work()
    async with legacy_pair(work) as (_, _, task, elsewhere):
        result = elsewhere.about("tasks/result")
        for text in ("Keep it?", "Really?"):
            question = await asked(elsewhere)
            assert question["params"]["message"] == text
            assert question["params"]["_meta"] == {"io.modelcontextprotocol/related-task": {"taskId": task.id}}
            elsewhere.talk.answer(question, accept(value=True))
        assert (await elsewhere.reply(result))["result"]["content"][0]["text"] == "1 accept accept"
        assert await task.status() == "completed"
    assert work.runs == 1


async def test_a_question_that_is_answered_where_the_task_runs_is_withdrawn_elsewhere() -> None:
    async with legacy_pair(Work()) as (_, _, task, elsewhere):
        result = elsewhere.about("tasks/result")
        question = await asked(elsewhere)
        await task.answer(True)
        while (message := await elsewhere.talk.receive()).get("method") != "notifications/cancelled":
            pass
        assert message["params"]["requestId"] == question["id"]
        elsewhere.talk.answer(await asked(elsewhere), accept(value=True))
        assert (await elsewhere.reply(result))["result"]["content"][0]["text"] == "1 accept accept"


async def test_the_error_of_a_client_at_another_process_is_raised_where_the_task_runs() -> None:
    async with legacy_pair(Work()) as (_, _, _, elsewhere):
        result = elsewhere.about("tasks/result")
        question = await asked(elsewhere)
        elsewhere.talk.send({"id": question["id"], "error": {"code": -1, "message": "not today"}})
        outcome = (await elsewhere.reply(result))["result"]
        assert outcome["isError"]
        assert "not today" in outcome["content"][0]["text"]


async def test_a_request_for_the_result_goes_on_where_the_task_is_taken_over() -> None:
    work = Work()
    async with legacy_pair(work) as (store, _, _, elsewhere):
        result = elsewhere.about("tasks/result")
        await asked(elsewhere)
        store.crash()
        for _ in range(2):
            question = await asked(elsewhere)
            elsewhere.talk.answer(question, accept(value=True))
        assert (await elsewhere.reply(result))["result"]["content"][0]["text"] == "1 accept accept"
    assert (work.charged, work.runs) == (1, 2)


async def test_a_store_that_fails_for_a_while_is_waited_for_by_a_request_for_the_result() -> None:
    async with legacy_pair(Work()) as (_, store, _, elsewhere):
        result = elsewhere.about("tasks/result")
        question = await asked(elsewhere)
        store.failing = True
        await trio.sleep(5)
        store.failing = False
        elsewhere.talk.answer(question, accept(value=True))
        elsewhere.talk.answer(await asked(elsewhere), accept(value=True))
        assert (await elsewhere.reply(result))["result"]["content"][0]["text"] == "1 accept accept"


async def test_an_answer_that_cannot_be_sent_on_is_asked_for_again_by_the_next_request_for_the_result() -> None:
    async with legacy_pair(Work()) as (_, store, _, elsewhere):
        result = elsewhere.about("tasks/result")
        question = await asked(elsewhere)
        store.failing = True
        elsewhere.talk.answer(question, accept(value=True))
        assert (await elsewhere.reply(result))["error"]["code"] == SERVER_BUSY
        store.failing = False
        elsewhere.about("tasks/result")
        assert (await asked(elsewhere))["params"]["message"] == "Keep it?"


# calls that wait where they asked


class Form(Shop):
    """A tool that asks, and must not be run again."""

    def __init__(self, resume: str = "parked") -> None:
        super().__init__(resume)

    async def order(self, ctx: Context) -> str:
        self.done.append("asked")
        return (await ctx.elicit("Sure?", bool)).action


class LongForm(Form):
    async def order(self, ctx: Context) -> str:
        await ctx.step("read", lambda: "page " * 100)
        return await super().order(ctx)


async def test_a_parked_call_is_not_lost_at_another_process_while_its_own_one_lives() -> None:
    form = Form()
    async with form.process() as (_, first), form.process() as (_, second):
        asked = await first.round(first.leg("order"))
        assert (await second.error(yes(asked, second)))["code"] == SERVER_BUSY
        assert await first.text(yes(asked, first)) == "accept"
    assert form.done == ["asked"]


async def test_a_client_that_never_reaches_the_process_of_its_call_gets_an_error_after_a_while() -> None:
    form = Form()
    async with form.process() as (_, first), form.process() as (_, second):
        asked = await first.round(first.leg("order"))
        codes: list[int] = []
        for _ in range(12):
            codes.append((await second.error(yes(asked, second)))["code"])
            await trio.sleep(1)
        # Once it has that error, it may try again.
        assert codes == [SERVER_BUSY] * 11 + [INTERNAL_ERROR]
        assert (await second.error(yes(asked, second)))["code"] == SERVER_BUSY
        assert await first.text(yes(asked, first)) == "accept"


async def test_a_client_that_comes_back_much_later_is_asked_to_try_again() -> None:
    form = Form()
    async with form.process() as (_, first), form.process() as (_, second):
        asked = await first.round(first.leg("order"))
        for _ in range(3):
            assert (await second.error(yes(asked, second)))["code"] == SERVER_BUSY
            await trio.sleep(100)


async def test_a_parked_call_is_lost_with_its_process() -> None:
    form = Form()
    async with form.process() as (store, first), form.process() as (_, second):
        asked = await first.round(first.leg("order"))
        store.crash()
        assert "lost" in await second.failure(yes(asked, second))
    assert form.done == ["asked"]


async def test_a_call_whose_journal_could_not_be_kept_is_not_lost_either_while_its_process_lives() -> None:
    form = LongForm("replay")
    async with form.process(max_state=10) as (store, first), form.process(max_state=10) as (_, second):
        store.failing = True
        asked = await first.round(first.leg("order"))
        store.failing = False
        assert (await second.error(yes(asked, second)))["code"] == SERVER_BUSY
        assert await first.text(yes(asked, first)) == "accept"


async def test_the_legs_that_a_process_cannot_run_are_limited() -> None:
    unreached = Unreached()
    for leg in range(2 * MOST_LEGS):
        unreached.refusal("call", leg)
    assert len(unreached) == MOST_LEGS


# a leg that is sent to both


class Counter(Shop):
    """A tool that asks, and then does something in no step."""

    async def order(self, ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        self.done.append("counted")
        await self.go_on.wait()
        return "counted"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["where it is parked first", "elsewhere first"])
async def test_of_two_processes_that_get_a_leg_the_first_runs_it(order: tuple[int, int]) -> None:
    counter = Counter()
    async with counter.process() as (_, parked), counter.process() as (_, other):
        talks = parked, other
        asked = await talks[0].round(talks[0].leg("order"))
        first, second = (talks[number] for number in order)
        running = yes(asked, first)
        await wait_all_tasks_blocked()
        for _ in range(2):
            assert (await second.error(yes(asked, second)))["code"] == SERVER_BUSY
        await wait_all_tasks_blocked()
        assert second.service.supervisor.actors == ()
        counter.go_on.set()
        assert await first.text(running) == "counted"
    assert counter.done == ["counted"]


async def test_the_process_that_has_forgotten_its_parked_call_takes_it_over_from_one_that_ends() -> None:
    counter = Counter()
    async with counter.process() as (_, first), counter.process() as (store, second):
        asked = await first.round(first.leg("order"))
        yes(asked, second)
        await wait_all_tasks_blocked()
        assert (await first.error(yes(asked, first)))["code"] == SERVER_BUSY
        store.crash()
        counter.go_on.set()
        assert await first.text(yes(asked, first)) == "counted"
    assert counter.done == ["counted"] * 2


async def test_a_leg_whose_client_goes_while_it_is_claimed_may_be_run_elsewhere() -> None:
    counter = Counter()
    counter.go_on.set()
    async with counter.process() as (store, first), counter.process() as (_, second):
        asked = await first.round(first.leg("order"))
        store.hang = trio.Event()
        request = yes(asked, first)
        await wait_all_tasks_blocked()
        first.session.disconnect(first.listeners[request])
        store.hang.set()
        await wait_all_tasks_blocked()
        assert await second.text(yes(asked, second)) == "counted"
    assert counter.done == ["counted"]


async def test_an_answer_that_is_malformed_claims_nothing() -> None:
    counter = Counter()
    counter.go_on.set()
    async with counter.process() as (_, first), counter.process() as (_, second):
        asked = await first.round(first.leg("order"))
        assert (await first.error(asked.leg({asked.key: {"action": 1}}, talk=first)))["code"] == INVALID_PARAMS
        assert await second.text(yes(asked, second)) == "counted"


# tasks of a process that lives


@asynccontextmanager
async def asked_at(
    work: Work, others: int = 1, resume: str = "replay"
) -> AsyncIterator[tuple[Process, LegacyTask, list[LegacyTask]]]:
    """Yield a process, its task, which has asked, and the same task at other processes."""
    disk = Disk()
    first, *rest = [Process(disk, work, resume) for _ in range(1 + others)]
    async with AsyncExitStack() as stack:
        task = await stack.enter_async_context(first.task(ModernTask))
        elsewhere = [await stack.enter_async_context(each.task(ModernTask)) for each in rest]
        await task.start("order")
        await wait_all_tasks_blocked()
        for each in elsewhere:
            each.id = task.id
        yield first, task, elsewhere


def update(task: LegacyTask, key: str, value: object) -> RequestId:
    answers = {key: {"action": "accept", "content": {"value": value}}}
    return task.request("tasks/update", taskId=task.id, inputResponses=answers)


async def key_of(task: LegacyTask) -> str:
    (key,) = (await task.get())["inputRequests"]
    return str(key)


@pytest.mark.parametrize("resume", ["replay", "parked"])
async def test_a_task_is_shown_with_its_questions_and_answered_at_another_process(resume: str) -> None:
    work = Work()
    async with asked_at(work, resume=resume) as (first, task, (elsewhere,)):
        assert (await elsewhere.get())["inputRequests"] == (await task.get())["inputRequests"]
        for _ in range(2):
            await elsewhere.answer(True)
        assert (await elsewhere.result())["content"][0]["text"] == "1 accept accept"
        assert (await task.result())["content"][0]["text"] == "1 accept accept"
    assert (work.charged, work.runs) == (1, 1)
    assert letters(first) == []


def letters(process: Process) -> list[str]:
    return [key for kind, key in process.store.disk.records if kind == MAIL_KIND]


async def test_a_question_is_shown_when_the_store_has_it() -> None:
    work = Work()
    work.may_ask = trio.Event()
    async with asked_at(work) as (first, task, (elsewhere,)):
        first.store.hang = trio.Event()
        work.may_ask.set()
        await wait_all_tasks_blocked()
        assert [(await each.get())["status"] for each in (task, elsewhere)] == ["working"] * 2
        first.store.hang.set()
        await wait_all_tasks_blocked()
        assert [(await each.get())["status"] for each in (task, elsewhere)] == ["input_required"] * 2


async def test_a_task_is_cancelled_at_another_process(task_era: type[LegacyTask]) -> None:
    work = Work()
    async with asked_at(work) as (first, task, _), Process(first.store.disk, work).task(task_era, task.id) as elsewhere:
        assert (await elsewhere.reply(elsewhere.about("tasks/cancel")))["result"]
        assert [await each.status() for each in (task, elsewhere)] == ["cancelled"] * 2
    assert letters(first) == []


async def test_a_cancel_that_nothing_carries_out_is_refused_after_a_while() -> None:
    async with asked_at(Work()) as (first, _, (elsewhere,)):
        first.store.hang = trio.Event()
        assert (await elsewhere.reply(elsewhere.about("tasks/cancel")))["error"]["code"] == SERVER_BUSY
        first.store.hang.set()
        await trio.sleep(1)
        assert await elsewhere.status() == "cancelled"


async def test_an_answer_is_taken_by_the_process_that_takes_the_task_over() -> None:
    work = Work()
    async with asked_at(work, 2) as (first, _, (second, third)):
        first.store.hang = trio.Event()
        # It is acknowledged as soon as it would survive.
        assert (await second.reply(update(second, await key_of(second), True)))["result"]
        first.store.crash()
        await trio.sleep(5)
        assert await key_of(third) != "elicit-1"
        await third.answer(True)
        assert (await second.result())["content"][0]["text"] == "1 accept accept"
    assert (work.charged, work.runs) == (1, 2)
    assert letters(first) == []


async def test_an_answer_is_recorded_in_the_write_that_removes_its_letter() -> None:
    async with asked_at(Work()) as (first, _, (elsewhere,)):
        await elsewhere.answer(True)
        (taken,) = [
            changes
            for changes in first.store.disk.writes
            if any(isinstance(change, Remove) and change.kind == MAIL_KIND for change in changes)
        ]
        assert any(isinstance(change, Append) for change in taken)


async def test_of_two_answers_that_are_sent_to_other_processes_the_first_counts() -> None:
    async with asked_at(Said(), 2) as (first, task, (second, third)):
        key = await key_of(task)
        requests = [(second, update(second, key, "first"))]
        await wait_all_tasks_blocked()
        requests.append((third, update(third, key, "second")))
        for each, request in requests:
            assert (await each.reply(request))["result"]
        assert (await task.result())["content"][0]["text"] == "first"
    assert letters(first) == []


class Said(Work):
    """Its task returns what its user says."""

    async def order(self, ctx: Context) -> str:
        return await ctx.elicit.strict("What?", str)


async def test_an_answer_that_is_malformed_is_rejected_where_it_comes_to() -> None:
    async with asked_at(Work()) as (first, _, (elsewhere,)):
        key = await key_of(elsewhere)
        request = elsewhere.request("tasks/update", taskId=elsewhere.id, inputResponses={key: {"action": 1}})
        assert (await elsewhere.reply(request))["error"]["code"] == INVALID_PARAMS
        assert (await elsewhere.reply(update(elsewhere, "unknown", True)))["result"]
    assert letters(first) == []


async def test_a_stranger_writes_no_letter() -> None:
    work = Work()
    async with (
        asked_at(work) as (first, task, _),
        talk_to(Process(first.store.disk, work).server, principal="bob") as talk,
    ):
        stranger = ModernTask(talk)
        stranger.id = task.id
        key = await key_of(task)
        assert (await stranger.reply(update(stranger, key, True)))["error"]["code"] == INVALID_PARAMS
        assert (await stranger.reply(stranger.about("tasks/cancel")))["error"]["code"] == INVALID_PARAMS
        assert letters(first) == []


async def test_a_letter_that_cannot_be_read_keeps_no_other_from_being_taken() -> None:
    async with asked_at(Work()) as (first, task, (elsewhere,)):
        key = storage_key(task.id)
        assert key is not None
        # Before the one with the answer, in the order of their keys; it opens with the keys, and is nothing of this version.
        place = (MAIL_KIND, f"{key}-")
        first.store.disk.records[place] = Record(*place, sealed(b"poison", KEYS, *place), version=1)
        for _ in range(2):
            await elsewhere.answer(True)
        assert (await task.result())["content"][0]["text"] == "1 accept accept"
        assert first.store.has_crashed is False


class Unsayable(Work):
    """Its task says and asks what JSON cannot say: half of a character, and no number."""

    async def order(self, ctx: Context) -> str:
        await ctx.status("broken\ud800")
        await ctx.elicit("broken\ud800", bool)
        return (await ctx.sample("Hello", metadata={"value": float("nan")})).text


async def test_what_a_task_says_and_json_cannot_ends_no_server() -> None:
    async with asked_at(Unsayable()) as (_, task, (elsewhere,)):
        seen = await elsewhere.get()
        (question,) = seen["inputRequests"].values()
        assert question["params"]["message"] == seen["statusMessage"] == "broken\ufffd"
        await elsewhere.answer(True)
        assert (await task.result())["isError"]
