"""The moment at which a call becomes a task: whatever happens around it, there is one task or none, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
import shared_disk
import trio
from crashing_store import Change, stored_names
from peer import Json
from talk import Round, Talk, accept, talk_to
from task_process import KEYS
from task_talk import DECLARES, ModernTask
from trio.testing import wait_all_tasks_blocked
from wire_terms import IDEMPOTENCY_KEY, REPEAT_OF

from trio_mcp import Context, RequestTimeout, Server, ServiceOptions, TaskOptions
from trio_mcp.session import Limits, MemoryBudget
from trio_mcp.session.recovery import key_store
from trio_mcp.session.tasks.record import TAKEN_BACK_OWNER
from trio_mcp.stores import Put, StoreError, StoreFull, StoreTimeout
from trio_mcp.types import RequestId, ToolAnnotations


class Shop(shared_disk.Shop):
    """Tools that become tasks."""

    def add_tools(self, server: Server) -> None:
        for tool in (self.order, self.sell, self.persist, self.late, self.shielded, self.doubled):
            server.tool(task="later", resume="replay")(tool)

    async def order(self, ctx: Context) -> str:
        """Become a task after a question."""
        await ctx.elicit.strict("What?", str)
        await ctx.become_task()
        return await self.ship(ctx)

    async def sell(self, ctx: Context) -> str:
        """Become a task at once."""
        await ctx.become_task()
        return await self.ship(ctx)

    async def persist(self, ctx: Context) -> str:
        """Go on without a task where there can be none."""
        await ctx.elicit.strict("What?", str)
        try:
            await ctx.become_task()
        except StoreError:
            self.done.append("no task")
        await ctx.step("pack", self.does("pack"))
        await ctx.elicit.strict("When?", str)
        return await self.ship(ctx)

    async def late(self, ctx: Context) -> str:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await ctx.become_task()
        return "never"

    async def shielded(self, ctx: Context) -> str:
        with trio.CancelScope(shield=True):
            await ctx.become_task()
        return await self.ship(ctx)

    async def doubled(self, ctx: Context) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.become_task)
            nursery.start_soon(ctx.become_task)
        return await self.ship(ctx)

    async def ship(self, ctx: Context) -> str:
        await ctx.step("ship", self.does("ship"))
        await self.go_on.wait()
        return "shipped"


class PatientShop(Shop):
    """A tool that waits for three seconds for its user, and goes on without an answer."""

    def add_tools(self, server: Server) -> None:
        server.tool(task="later", resume="replay", limit=1)(self.remind)

    async def remind(self, ctx: Context) -> str:
        with suppress(RequestTimeout):
            await ctx.elicit("What?", str, timeout=3)
        await ctx.become_task()
        return await self.ship(ctx)


async def created(talk: Talk, request_id: RequestId) -> str:
    """Return the id of the task that a request has become."""
    task = ModernTask(talk)
    return str(task.created(await task.reply(request_id))["taskId"])


def answered(asked: Round, talk: Talk) -> RequestId:
    return asked.leg({asked.key: accept(value="tea")}, talk=talk, capabilities=DECLARES)


def is_task(changes: Sequence[Change]) -> bool:
    return any(isinstance(change, Put) and change.record.kind == "task" for change in changes)


async def test_a_retry_that_comes_to_the_next_process_gets_the_task_that_there_is() -> None:
    shop = Shop()
    async with shop.process() as (store, talk):
        asked = await talk.round(talk.leg("order", capabilities=DECLARES))
        first = await created(talk, answered(asked, talk))
        await wait_all_tasks_blocked()
        store.crash()
    async with shop.process() as (_, talk):
        await wait_all_tasks_blocked()
        assert [await created(talk, answered(asked, talk)) for _ in range(2)] == [first, first]
        await wait_all_tasks_blocked()
        assert len(talk.service.tasks) == 1
    assert shop.done == ["ship"]


@pytest.mark.parametrize("first_here", [True, False])
async def test_one_retry_that_comes_to_two_living_processes_makes_one_task(first_here: bool) -> None:
    """In one of them the call is parked."""
    shop = Shop()
    async with shop.process() as (_, here), shop.process() as (_, there):
        asked = await here.round(here.leg("order", capabilities=DECLARES))
        talks = [here, there] if first_here else [there, here]
        requests = [answered(asked, talk) for talk in talks]
        await wait_all_tasks_blocked()
        # The process that does not run the leg may have been asked before there was a task.
        refused = [(await talk.reply_to(each)).get("error") for talk, each in zip(talks, requests, strict=True)]
        assert [error["code"] for error in refused if error is not None] in ([], [-32000])
        ids = {await created(talk, answered(asked, talk)) for talk in talks}
        await wait_all_tasks_blocked()
        assert len(ids) == sum(len(talk.service.tasks) for talk in talks) == 1
        assert [kind for kind, _ in shop.disk.records].count("task") == 1
    assert shop.done == ["ship"]


async def test_a_retry_that_comes_to_a_third_process_gets_the_task_that_a_living_one_has_made() -> None:
    """Also where another process carried the call on, and lost."""
    shop = Shop()
    async with shop.process() as (_, first), shop.process() as (_, second), shop.process() as (_, third):
        asked = await first.round(first.leg("order", capabilities=DECLARES))
        assert len({await created(talk, answered(asked, talk)) for talk in (second, third)}) == 1


async def test_no_task_comes_of_a_call_whose_step_has_run_in_another_process() -> None:
    """There its client took no task."""
    shop = Shop()
    async with shop.process() as (_, here), shop.process() as (_, there):
        asked = await here.round(here.leg("order", capabilities=DECLARES))
        shop.go_on.set()
        assert await there.text(asked.leg({asked.key: accept(value="tea")}, talk=there))
        assert (await here.error(answered(asked, here)))["code"] == -32000
        await wait_all_tasks_blocked()
        assert [kind for kind, _ in shop.disk.records].count("task") == 0
    assert shop.done == ["ship"]


async def test_a_task_that_was_taken_back_keeps_none_from_being_made() -> None:
    """Its write was made after its time."""
    shop = Shop()
    async with shop.process() as (store, talk), shop.process() as (_, other):
        asked = await talk.round(talk.leg("persist", capabilities=DECLARES))
        written = store.write

        async def write_late(changes: Sequence[Change]) -> None:
            await written(changes)
            if is_task(changes):
                raise StoreTimeout("the disk hung")

        store.write = write_late  # type: ignore[method-assign]
        await talk.round(answered(asked, talk))
        (left,) = [record for (kind, _), record in shop.disk.records.items() if kind == "task"]
        assert left.owner in stored_names(TAKEN_BACK_OWNER, KEYS)
        # It went on without a task, in a step: while it lives, no other process carries the call on.
        store.crash()
        assert await created(other, answered(asked, other))


async def test_a_retry_gets_the_task_that_there_was_also_when_its_time_is_over() -> None:
    shop = Shop()
    async with shop.process(tasks=TaskOptions(ttl=1)) as (_, here), shop.process() as (_, there):
        asked = await here.round(here.leg("order", capabilities=DECLARES))
        first = await created(here, answered(asked, here))
        await trio.sleep(2)
        shop.disk.records = {place: each for place, each in shop.disk.records.items() if place[0] != "task"}
        assert await created(there, answered(asked, there)) == first
    assert shop.done == ["ship"]


KEYED: Json = {IDEMPOTENCY_KEY: "k" * 32}


@pytest.mark.parametrize("is_early", [True, False])
async def test_a_repeat_that_comes_to_the_next_process_gets_the_task_that_there_is(is_early: bool) -> None:
    """Also if nothing was written after the task."""
    shop = Shop()
    stored = trio.Event()

    def crash(changes: Sequence[Change]) -> None:
        if stored.is_set() and is_early:
            store.crash()
        elif is_task(changes):
            stored.set()

    async with shop.process() as (store, talk):
        store.on_write = crash
        talk.leg("sell", capabilities=DECLARES, meta=KEYED)
        await wait_all_tasks_blocked()
        store.crash()
    async with shop.process() as (_, talk):
        await wait_all_tasks_blocked()
        ids = {await created(talk, talk.leg("sell", capabilities=DECLARES, meta=KEYED)) for _ in range(2)}
        await wait_all_tasks_blocked()
        assert [task.record.id for task in talk.service.tasks] == list(ids)
    assert shop.done == ["ship"]


class SafeShop(Shop):
    """Its tools may run twice, but make one task."""

    def add_tools(self, server: Server) -> None:
        annotations = ToolAnnotations(idempotent_hint=True)
        server.tool(task="later", resume="replay", annotations=annotations)(self.sell)
        server.tool(task="later", resume="replay", annotations=annotations)(self.ship)
        server.tool(task=True, resume="replay", annotations=annotations)(self.report)

    async def report(self, ctx: Context) -> str:
        return await self.ship(ctx)


@pytest.mark.parametrize("tool", ["sell", "report"])
@pytest.mark.parametrize("lives", [True, False])
async def test_a_repeat_of_a_tool_that_may_run_twice_gets_the_task_that_there_is(tool: str, *, lives: bool) -> None:
    shop = SafeShop()
    async with shop.process() as (store, first):
        task = await created(first, first.leg(tool, capabilities=DECLARES, meta=KEYED))
        await wait_all_tasks_blocked()
        if not lives:
            store.crash()
        async with shop.process() as (_, second):
            await wait_all_tasks_blocked()
            assert await created(second, second.leg(tool, capabilities=DECLARES, meta=KEYED)) == task
        assert [kind for kind, _ in shop.disk.records].count("task") == 1


async def test_a_call_that_may_run_twice_runs_again_where_its_outcome_had_no_room(monkeypatch: Any) -> None:
    monkeypatch.setattr(key_store, "STORED_OUTCOMES", key_store.STORED_OUTCOMES._replace(limit=0))
    shop = SafeShop()
    shop.go_on.set()
    for _ in range(2):
        async with shop.process() as (store, talk):
            assert await talk.text(talk.leg("ship", capabilities=DECLARES, meta=KEYED)) == "shipped"
            store.crash()
    assert shop.done == ["ship", "ship"]


async def test_a_call_that_may_run_twice_runs_although_another_store_may_have_its_key() -> None:
    shop = SafeShop()
    shop.go_on.set()
    async with shop.process() as (_, talk):
        meta = {**KEYED, REPEAT_OF: "another"}
        assert await talk.text(talk.leg("ship", capabilities=DECLARES, meta=meta)) == "shipped"


@pytest.mark.parametrize("goes", [Talk.cancel, lambda talk, sent: talk.session.disconnect(talk.listeners[sent])])
async def test_nothing_remains_when_the_client_goes_before_the_task_is_stored(
    goes: Callable[[Talk, RequestId], object],
) -> None:
    shop = Shop()
    async with shop.process() as (store, talk):
        await wait_all_tasks_blocked()
        store.hang = trio.Event()
        sent = talk.leg("sell", capabilities=DECLARES)
        await wait_all_tasks_blocked()
        goes(talk, sent)
        await wait_all_tasks_blocked()
        store.hang.set()
        await talk.silence()
        assert len(talk.service.tasks) == 0
        assert not [kind for kind, _ in shop.disk.records if kind == "task"]
    assert shop.done == []


async def test_a_call_that_was_cancelled_becomes_no_task_while_it_cleans_up() -> None:
    async with Shop().process(store=None) as (_, talk):
        sent = talk.leg("late", capabilities=DECLARES)
        await wait_all_tasks_blocked()
        talk.cancel(sent)
        await talk.silence()
        assert len(talk.service.tasks) == 0


@pytest.mark.parametrize("waits", [2, 10])
async def test_a_call_whose_question_timed_out_becomes_a_task_when_its_client_comes_back(waits: float) -> None:
    shop = PatientShop()
    async with shop.process(store=None) as (_, talk):
        asked = await talk.round(talk.leg("remind", capabilities=DECLARES))
        await trio.sleep(waits)
        assert shop.done == []
        ids = [await created(talk, answered(asked, talk)) for _ in range(2)]
        await wait_all_tasks_blocked()
        assert ids == [task.record.id for task in talk.service.tasks] * 2
    assert shop.done == ["ship"]


async def test_a_task_does_not_repeat_a_question_that_timed_out() -> None:
    """Also not in the next process."""
    shop = PatientShop()
    async with shop.process() as (store, talk):
        asked = await talk.round(talk.leg("remind", capabilities=DECLARES))
        await trio.sleep(10)
        task_id = await created(talk, answered(asked, talk))
        store.crash()
    shop.go_on.set()
    async with shop.process() as (_, talk):
        task = ModernTask(talk)
        task.id = task_id
        assert await task.status() == "completed"
    assert shop.done == ["ship"]


async def test_a_call_whose_client_does_not_come_back_becomes_no_task() -> None:
    """It waits as one does that asks, and its place is free."""
    shop = PatientShop()
    async with shop.process(store=None, actors=Limits(park_ttl=20)) as (_, talk):
        await talk.round(talk.leg("remind", capabilities=DECLARES))
        await trio.sleep(10)
        await talk.round(talk.leg("remind", capabilities=DECLARES))
        await trio.sleep(50)
        assert len(talk.service.tasks) == talk.service.statistics().actors.parked == 0
    assert shop.done == []


async def test_a_client_that_comes_back_and_takes_no_task_waits_for_the_result() -> None:
    shop = PatientShop()
    shop.go_on.set()
    async with shop.process(store=None) as (_, talk):
        asked = await talk.round(talk.leg("remind", capabilities=DECLARES))
        await trio.sleep(10)
        assert await talk.text(asked.retry("tea")) == "shipped"
        assert len(talk.service.tasks) == 0


async def test_a_shielded_scope_does_not_hold_the_call_that_has_become_a_task() -> None:
    shop = Shop()
    async with shop.process(store=None) as (_, talk):
        await created(talk, talk.leg("shielded", capabilities=DECLARES))
        await wait_all_tasks_blocked()
        assert talk.service.statistics().actors.running == len(talk.service.tasks) == 1


async def test_two_parts_of_a_body_make_one_task() -> None:
    async with Shop().process(store=None) as (_, talk):
        talk.leg("doubled", capabilities=DECLARES)
        await wait_all_tasks_blocked()
        assert len(talk.service.tasks) <= 1


async def test_a_call_whose_task_cannot_be_stored_goes_on_and_survives_a_crash() -> None:
    shop = Shop()

    def fail(changes: Sequence[Change]) -> None:
        if is_task(changes):
            raise StoreFull("the disk is full")

    async with shop.process() as (store, talk):
        store.on_write = fail
        asked = await talk.round(talk.leg("persist", capabilities=DECLARES))
        asked = await talk.round(answered(asked, talk))
        store.crash()
    shop.go_on.set()
    async with shop.process() as (_, talk):
        assert ModernTask(talk).created(await ModernTask(talk).reply(answered(asked, talk)))
        await wait_all_tasks_blocked()
    assert shop.done.count("pack") == 1


async def test_a_task_draws_from_the_memory_budget_what_the_call_had_recorded() -> None:
    size, memory, server = 100_000, MemoryBudget(100_000_000), Server("tester")

    @server.tool(task="later", resume="replay")
    async def ask(ctx: Context) -> None:
        await ctx.elicit.strict("What?", str)
        await ctx.elicit.strict("When?", str)
        await ctx.become_task()
        await trio.sleep_forever()

    server.options = ServiceOptions(keys=KEYS, memory=memory, max_state=1)
    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg("ask", capabilities=DECLARES))
        asked = await talk.round(asked.retry("x" * size, capabilities=DECLARES))
        await created(talk, answered(asked, talk))
        await wait_all_tasks_blocked()
        assert memory.drawn > size


async def test_the_on_cancel_of_a_handoff_tool_does_not_run_for_a_call_that_becomes_a_task() -> None:
    server, undone = Server("tester"), []

    async def client(value: int, ctx: Context) -> str:
        await ctx.become_task()
        return f"seat {value}"

    async def book(value: int, answer: str, ctx: Context) -> str:
        return answer

    async def release(value: int, ctx: Context) -> None:
        undone.append(value)

    @server.handoff_tool(client=client, after=book, on_cancel=release, task="later", resume="replay")
    async def hold(ctx: Context) -> int:
        return 7

    async with talk_to(server) as talk:
        task = ModernTask(talk)
        task.id = await created(talk, talk.leg("hold", capabilities=DECLARES))
        assert (await task.result())["content"][0]["text"] == "seat 7"
    assert undone == []
