"""A process that others take for dead, as its lock file has vanished: what it owned is theirs, and it runs no step of that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing
from crashing_store import Disk
from shared_disk import Shop
from talk import accept
from task_process import Process, Work
from task_talk import ModernTask
from trio.testing import wait_all_tasks_blocked
from wire_terms import IDEMPOTENCY_KEY, OUTCOME_UNKNOWN

from trio_mcp import Context


class Order(Work):
    """Its task charges, asks, and ships."""

    def __init__(self) -> None:
        super().__init__()
        self.shipped = 0
        self.go_on = trio.Event()

    async def order(self, ctx: Context) -> str:
        self.runs += 1
        await ctx.step("charge", self.charge)
        answer = await ctx.elicit("Ship it?", bool)
        await ctx.step("ship", self.ship)
        return answer.action

    def ship(self) -> None:
        self.shipped += 1


@asynccontextmanager
async def taken_over(work: Order) -> AsyncIterator[tuple[ModernTask, ModernTask]]:
    """Yield a task at the process that began it, and at the one that has taken it over; both live."""
    disk = Disk()
    first, second = Process(disk, work), Process(disk, work)
    async with first.task(ModernTask) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
        disk.alive.discard(first.store._node)  # noqa: SLF001
        async with second.task(ModernTask, task.id) as elsewhere:
            yield task, elsewhere


async def test_a_step_does_not_run_in_a_process_whose_task_was_taken_over() -> None:
    work = Order()
    async with taken_over(work) as (task, elsewhere):
        key = next(iter((await task.get())["inputRequests"]))
        answer = {key: {"action": "accept", "content": {"value": True}}}
        late = task.request("tasks/update", taskId=task.id, inputResponses=answer)
        refused = (await task.reply(late))["error"]
        assert (refused["code"], "another process" in refused["message"]) == (-32000, True)
        assert work.shipped == 0
        assert await task.status() == "input_required"
        await elsewhere.answer(True)
        assert (await elsewhere.result())["content"][0]["text"] == "accept"
        assert (await task.result())["content"][0]["text"] == "accept"
    assert (work.charged, work.shipped, work.runs) == (1, 1, 2)


class Charging(Order):
    """It charges for a while, in the process that began it."""

    async def order(self, ctx: Context) -> str:
        self.runs += 1
        await ctx.step("prepare", self.charge)
        if self.runs == 1:
            await self.go_on.wait()
        await ctx.step("ship", self.ship)
        return (await ctx.elicit("Bill it?", bool)).action


async def test_a_step_that_no_answer_begins_does_not_run_there_either() -> None:
    work = Charging()
    async with taken_over(work) as (task, elsewhere):
        assert await elsewhere.status() == "input_required"
        work.go_on.set()
        await wait_all_tasks_blocked()
        assert await task.status() == "input_required"
        await elsewhere.answer(True)
        assert await task.status() == "completed"
    assert (work.charged, work.shipped, work.runs) == (1, 1, 2)


class InStep(Order):
    """The step that ships is running when its task is taken over."""

    async def order(self, ctx: Context) -> str:
        self.runs += 1
        await ctx.step("ship", self.ship_slowly)
        await ctx.step("bill", self.charge)
        return "shipped"

    async def ship_slowly(self) -> None:
        self.shipped += 1
        await self.go_on.wait()


async def test_what_a_step_has_done_when_its_task_was_taken_over_is_not_done_again() -> None:
    work = InStep()
    async with taken_over(work) as (task, elsewhere):
        work.go_on.set()
        assert "'ship' may have run" in str((await elsewhere.outcome())["error"])
        await wait_all_tasks_blocked()
        assert await task.status() == "failed"
    assert (work.charged, work.shipped, work.runs) == (0, 1, 1)


async def test_the_status_that_a_task_sets_meanwhile_is_no_take_over() -> None:
    """Both change the record and the log, and each of them names the version of the record."""

    class Busy(Order):
        async def order(self, ctx: Context) -> str:
            async with ctx.branches() as group:
                for number in range(20):
                    group.start(lambda branch, number=number: self.work(branch, number))
            return "done"

        async def work(self, ctx: Context, number: int) -> None:
            await ctx.status(f"doing {number}")
            await ctx.step(f"step {number}", self.charge)
            await ctx.status(f"did {number}")

    disk, work = Disk(), Busy()
    async with Process(disk, work).task(ModernTask) as task:
        await task.start("order")
        assert (await task.result())["content"][0]["text"] == "done"
    assert work.charged == 20


# legs of a call in rounds


class Branching(Shop):
    """A tool that asks two questions at once, and ships then."""

    async def order(self, ctx: Context) -> str:
        async def ask(branch: Context) -> None:
            await branch.elicit("Sure?", bool)

        await ctx.branch_all(ask, ask)
        await ctx.step("ship", self.does("ship"))
        return "shipped"


@pytest.mark.parametrize("is_alive", [True, False], ids=["lives", "was restarted"])
async def test_a_step_that_another_leg_has_run_elsewhere_does_not_run_again_where_the_call_is_parked(
    is_alive: bool,
) -> None:
    """The first state ends the call in one process, with both answers; the second one leads to the other process.

    That one looks dead when the first state comes.
    """
    shop = Branching()
    async with AsyncExitStack() as stack:
        home, other = [await shop.start(stack) for _ in range(2)]
        first = await home.round(home.leg("order"))
        one, two = first.keys
        second = await home.round(first.leg({one: accept(value=True)}, talk=home))
        shop.disk.alive.discard(home.service.calls.node)
        if not is_alive:
            home = await shop.start(stack)
        both = {one: accept(value=True), two: accept(value=True)}
        assert await other.text(first.leg(both, talk=other)) == "shipped"
        refused = await home.error(second.leg({two: accept(value=True)}, talk=home))
        assert (refused["code"], "another process" in refused["message"]) == (-32000, True)
        assert await other.text(second.leg({two: accept(value=True)}, talk=other)) == "shipped"
    assert shop.done == ["ship"]


class Naming(Shop):
    """A tool that asks two questions at once, and ships to what was answered."""

    async def order(self, ctx: Context) -> str:
        async def ask(branch: Context) -> str:
            return await branch.elicit.strict("To whom?", str)

        names = " ".join(await ctx.branch_all(ask, ask))
        await ctx.step("ship", self.done.append, names)
        await self.go_on.wait()
        return names


async def test_the_answers_with_which_a_step_has_run_count_for_an_older_state_too() -> None:
    shop = Naming()
    async with AsyncExitStack() as stack:
        home, other, last = [await shop.start(stack) for _ in range(3)]
        first = await home.round(home.leg("order"))
        one, two = first.keys
        second = await home.round(first.leg({one: accept(value="ana")}, talk=home))
        second.leg({two: accept(value="bo")}, talk=other)
        await wait_all_tasks_blocked()
        assert shop.done == ["ana bo"]
        shop.disk.alive.clear()
        shop.go_on.set()
        request = first.leg({one: accept(value="eve"), two: accept(value="eve")}, talk=last)
        assert await last.text(request) == "ana bo"
    assert shop.done == ["ana bo"]


class Priced(Shop):
    """A tool whose second question depends on the price of the day."""

    price = 20

    async def order(self, ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        if self.price > 10:
            await ctx.elicit("Still?", bool)
        await ctx.step("ship", self.does("ship"))
        await self.go_on.wait()
        return "shipped"


@pytest.mark.parametrize("lives", [True, False], ids=["which lives", "which has ended"])
@pytest.mark.parametrize("older_first", [True, False], ids=["the older first", "both at once"])
async def test_of_an_older_and_a_newer_state_of_one_process_one_runs_the_step(lives: bool, older_first: bool) -> None:
    shop = Priced()
    async with AsyncExitStack() as stack:
        home = await shop.start(stack)
        first = await home.round(home.leg("order"))
        second = await home.round(first.leg({first.key: accept(value=True)}, talk=home))
        if not lives:
            shop.disk.alive.clear()
        older = await shop.start(stack)
        newer = home if lives else await shop.start(stack)
        shop.price = 5
        requests = [first.leg({first.key: accept(value=True)}, talk=older)]
        if older_first:
            await wait_all_tasks_blocked()
        requests.append(second.leg({second.key: accept(value=True)}, talk=newer))
        await wait_all_tasks_blocked()
        assert shop.done == ["ship"]
        shop.go_on.set()
        replies = [await talk.reply_to(request) for talk, request in zip((older, newer), requests, strict=True)]
    assert shop.done == ["ship"]
    assert sorted("result" in reply for reply in replies) == [False, True]


# calls with a key


class Till(Shop):
    """A tool that ships, and bills then."""

    async def order(self, ctx: Context) -> str:
        await ctx.step("ship", self.does("ship"))
        if self.done and not self.go_on.is_set():
            await self.go_on.wait()
        await ctx.step("bill", self.does("bill"))
        return "shipped"


async def test_a_keyed_call_that_was_taken_over_runs_its_steps_once() -> None:
    shop = Till()
    meta = {IDEMPOTENCY_KEY: "order-1"}
    async with AsyncExitStack() as stack:
        talks = [await shop.start(stack) for _ in range(2)]
        first = talks[0].leg("order", meta=meta)
        await wait_all_tasks_blocked()
        shop.disk.alive.clear()
        second = talks[1].leg("order", meta=meta)
        await wait_all_tasks_blocked()
        assert shop.done == ["ship"]
        shop.go_on.set()
        assert await talks[1].text(second) == "shipped"
        assert (await talks[0].error(first))["data"] == {OUTCOME_UNKNOWN: True}
        assert await talks[0].text(talks[0].leg("order", meta=meta)) == "shipped"
    assert shop.done == ["ship", "bill"]
