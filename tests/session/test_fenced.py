"""A process that was buried by another one, and learns of it: it gives up what it had, and joins its store under a new name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import trio
from noticing_store import NoticingDisk, NoticingStore
from talk import Talk, accept, talk_to
from task_process import KEYS
from task_talk import ModernTask
from trio.testing import wait_all_tasks_blocked
from wire_terms import IDEMPOTENCY, IDEMPOTENCY_KEY, OUTCOME_UNKNOWN, SERVER_BUSY

from trio_mcp import CancelReason, Context, Server, ServiceOptions
from trio_mcp.stores import StoreError


class Shop:
    """A tool that charges, asks and ships, in processes that share a disk."""

    def __init__(self) -> None:
        self.disk = NoticingDisk()
        self.charged = self.shipped = 0
        self.may_ship = trio.Event()
        self.reasons: list[CancelReason | None] = []

    async def order(self, ctx: Context) -> str:
        await ctx.step("charge", self.charge)
        answer = await ctx.elicit("Ship it?", bool)
        try:
            await self.may_ship.wait()
            # The author takes any failure for an answer.
            try:
                await ctx.step("ship", self.ship)
            except StoreError:
                return "failed"
        finally:
            self.reasons.append(ctx.cancel_reason)
        return answer.action

    async def wait(self) -> str:
        await trio.sleep_forever()
        return ""

    def charge(self) -> None:
        self.charged += 1

    def ship(self) -> None:
        self.shipped += 1


class Process:
    def __init__(self, shop: Shop) -> None:
        self.store = NoticingStore(shop.disk)
        self.server = Server("shop", version="1", options=ServiceOptions(keys=KEYS, store=self.store))
        self.server.tool(resume="replay")(shop.order)
        self.server.tool(resume="replay", task=True, name="job")(shop.order)
        self.server.tool(shop.wait)
        self.talk: Talk = None  # type: ignore[assignment]

    @property
    def node(self) -> str:
        return self.talk.service.calls.node

    async def buried(self) -> None:
        """Let another process bury this one, and wait until it has learned of it and joined again."""
        before = self.node
        self.store.be_buried()
        self.store.lapses += 1
        await self.rejoined(before)

    async def rejoined(self, before: str) -> None:
        with trio.fail_after(10):
            while self.node == before or self.talk.service.is_fenced:  # noqa: ASYNC110  nothing notifies of it
                await trio.sleep(0.05)


@asynccontextmanager
async def pair(shop: Shop) -> AsyncIterator[list[Process]]:
    async with AsyncExitStack() as stack:
        processes = [Process(shop) for _ in range(2)]
        for each in processes:
            each.talk = await stack.enter_async_context(talk_to(each.server))
        await wait_all_tasks_blocked()
        yield processes


async def begun(shop: Shop, first: Process, second: Process) -> tuple[int, int]:
    """Let the first process be buried in the second leg of a call, and the second one run that leg too; return their requests."""
    asked = await first.talk.round(first.talk.leg("order"))
    answers = {asked.key: accept(value=True)}
    here = asked.leg(answers)
    await wait_all_tasks_blocked()
    first.store.be_buried()
    elsewhere = asked.leg(answers, talk=second.talk)
    await wait_all_tasks_blocked()
    shop.may_ship.set()
    return int(here), int(elsewhere)


async def test_a_call_learns_of_it_in_a_step_which_does_not_run_and_is_cancelled_at_once() -> None:
    shop = Shop()
    async with pair(shop) as (first, second):
        here, elsewhere = await begun(shop, first, second)
        assert await second.talk.text(elsewhere) == "accept"
        # On a channel of many requests there is nothing to cut: without an answer its client would not stop waiting.
        assert (await first.talk.error(here))["data"] == {OUTCOME_UNKNOWN: True}
    assert (shop.charged, shop.shipped) == (1, 1)
    assert shop.reasons.count(CancelReason.FENCED) == 1


async def test_where_a_response_can_be_cut_nothing_is_said() -> None:
    shop = Shop()
    async with pair(shop) as (first, second):
        asked = await first.talk.round(first.talk.leg("order"))
        outbox = first.talk.service.open_outbox()
        first.talk.leg("order", state=asked.state, answers={asked.key: accept(value=True)})
        target = first.talk.listeners[max(first.talk.listeners)]
        target.owns_outbox, target.outbox = True, outbox
        await wait_all_tasks_blocked()
        first.store.be_buried()
        shop.may_ship.set()
        await wait_all_tasks_blocked()
        assert outbox.closed
        assert not outbox.items
        assert await second.talk.text(asked.leg({asked.key: accept(value=True)}, talk=second.talk)) == "accept"


async def test_a_process_that_writes_nothing_learns_of_it_from_its_lease() -> None:
    shop = Shop()
    async with pair(shop) as (first, _):
        waiting = first.talk.leg("wait")
        await wait_all_tasks_blocked()
        await first.buried()
        assert (await first.talk.error(waiting))["data"] == {OUTCOME_UNKNOWN: True}
        capabilities = (await first.talk.result(first.talk.ask("server/discover")))["capabilities"]
        assert capabilities["experimental"][IDEMPOTENCY] == {"instance": first.node}


async def test_a_lapse_that_is_no_burial_changes_nothing() -> None:
    shop = Shop()
    async with pair(shop) as (first, _):
        before = first.node
        first.talk.leg("wait")
        await wait_all_tasks_blocked()
        first.store.lapses += 1
        await trio.sleep(2)
        assert (first.node, first.talk.waiting()) == (before, [])


async def test_it_waits_for_a_store_that_is_away_and_serves_meanwhile_what_needs_none() -> None:
    shop = Shop()
    async with pair(shop) as (first, _):
        before = first.node
        first.store.join_fails = True
        first.store.be_buried()
        refused = await first.talk.error(first.talk.leg("wait", meta={IDEMPOTENCY_KEY: "k"}))
        assert refused["code"] == SERVER_BUSY
        await trio.sleep(20)
        assert (first.node, first.talk.service.is_fenced) == (before, True)
        assert "tools" in await first.talk.result(first.talk.ask("tools/list"))
        first.store.join_fails = False
        await first.rejoined(before)


async def test_what_it_had_in_the_store_goes_on_here_if_no_other_process_has_it() -> None:
    shop = Shop()
    shop.may_ship.set()
    async with pair(shop) as (first, second):
        task = ModernTask(first.talk)
        await task.start("job")
        asked = await first.talk.round(first.talk.leg("order"))
        await wait_all_tasks_blocked()
        second.store.crash()
        await first.buried()
        assert await first.talk.text(asked.leg({asked.key: accept(value=True)})) == "accept"
        await trio.sleep(3)
        await task.answer(True)
        assert (await task.result())["content"][0]["text"] == "accept"
    assert (shop.charged, shop.shipped) == (2, 2)


async def test_it_may_happen_again() -> None:
    shop = Shop()
    shop.may_ship.set()
    async with pair(shop) as (first, second):
        for _ in range(2):
            await first.buried()
            asked = await first.talk.round(first.talk.leg("order"))
            assert await second.talk.text(asked.leg({asked.key: accept(value=True)}, talk=second.talk)) == "accept"
