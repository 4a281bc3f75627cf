"""A state that reaches several processes: one of them carries the call on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
import trio
from crashing_store import Disk
from late_store import NEVER, LateStore, in_time
from talk import Round, Talk, accept, talk_to
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Context, Server
from trio_mcp.base.shared_limits import UNSETTLED
from trio_mcp.errors import LimitExceeded
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.session import Limits, ServiceOptions
from trio_mcp.session.recovery import settling
from trio_mcp.session.recovery.claims import CLAIM_KIND
from trio_mcp.stores import StoreError, StoreFull

KEYS = KeyRing.random()
PARK_TTL = 100.0


async def wait() -> str:
    await trio.sleep_forever()


class Shop:
    """A tool that asks, charges and waits, in several processes that share a disk."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.charged = 0
        self.go_on = trio.Event()

    async def order(self, ctx: Context) -> str:
        await ctx.elicit("Sure?", bool)
        await ctx.step("charge", self.charge)
        await self.go_on.wait()
        return "ordered"

    def charge(self) -> None:
        self.charged += 1

    async def process(self, stack: AsyncExitStack, resume: str = "replay", actors: int = 100) -> tuple[LateStore, Talk]:
        """Start a process."""
        store = LateStore(self.disk)
        options = ServiceOptions(keys=KEYS, store=store, actors=Limits(actors=actors, park_ttl=PARK_TTL))
        server = Server("shop", version="1", options=options)
        server.tool(resume=resume)(self.order)  # type: ignore[call-overload]
        server.tool(wait)
        return store, await stack.enter_async_context(talk_to(server))

    async def asked(self, resume: str = "replay") -> Round:
        """Return the round of a call whose process has ended."""
        async with AsyncExitStack() as stack:
            store, talk = await self.process(stack, resume)
            asked = await talk.round(talk.leg("order"))
            store.crash()
            return asked


@pytest.fixture
def shop() -> Shop:
    return Shop()


def yes(asked: Round, talk: Talk) -> int:
    return asked.leg({asked.key: accept(value=True)}, talk=talk)  # type: ignore[return-value]


async def test_a_copy_for_the_same_process_joins_the_call(shop: Shop) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        _, talk = await shop.process(stack)
        requests = [yes(asked, talk) for _ in range(2)]
        await wait_all_tasks_blocked()
        shop.go_on.set()
        replies = [await talk.receive() for _ in requests]
    assert {reply["id"]: reply["result"]["content"][0]["text"] for reply in replies} == dict.fromkeys(
        requests, "ordered"
    )
    assert shop.charged == 1


async def test_a_claim_expires_with_the_state(shop: Shop) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        _, talk = await shop.process(stack)
        yes(asked, talk)
        await wait_all_tasks_blocked()
        (claim,) = [record for (kind, _), record in shop.disk.records.items() if kind == CLAIM_KIND]
        assert PARK_TTL - 10 < claim.expires_at - time.time() <= PARK_TTL


async def test_without_its_claim_no_call_is_carried_on(shop: Shop) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        store, talk = await shop.process(stack)

        def fail(_changes: object) -> None:
            raise StoreError("the disk is full")

        store.on_write = fail
        assert (await talk.error(yes(asked, talk)))["code"] == -32000
        assert shop.charged == 0
        # The state is good for another try.
        store.on_write = lambda _changes: None
        shop.go_on.set()
        assert await talk.text(yes(asked, talk)) == "ordered"


async def test_a_call_that_must_not_run_twice_claims_nothing(shop: Shop) -> None:
    asked = await shop.asked("parked")
    async with AsyncExitStack() as stack:
        _, talk = await shop.process(stack, "parked")
        assert "lost" in await talk.failure(yes(asked, talk))
    assert not shop.disk.records


# a claim of which nothing comes


async def goes_on_elsewhere(shop: Shop, stack: AsyncExitStack, asked: Round) -> None:
    """The claim that a living process has made keeps no other process from the call."""
    shop.go_on.set()
    _, other = await shop.process(stack)
    assert await other.text(yes(asked, other)) == "ordered"
    assert shop.charged == 1


async def test_a_process_that_is_full_gives_its_claim_back(shop: Shop) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        _, full = await shop.process(stack, actors=1)
        full.leg("wait")
        await wait_all_tasks_blocked()
        assert (await full.error(yes(asked, full)))["code"] == -32000
        await goes_on_elsewhere(shop, stack, asked)


async def test_a_claim_is_given_back_if_the_log_cannot_be_read(shop: Shop) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        store, talk = await shop.process(stack)

        async def fail(*_place: object) -> Sequence[bytes]:
            raise StoreError("the disk is gone")

        store.entries = fail  # type: ignore[method-assign]
        error = await talk.error(yes(asked, talk))
        assert (error["code"], "disk" in error["message"]) == (-32000, False)
        await goes_on_elsewhere(shop, stack, asked)


async def test_a_claim_is_given_back_if_the_client_leaves_before_the_call_starts(shop: Shop) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        store, talk = await shop.process(stack)
        store.may_read_logs = trio.Event()
        request = yes(asked, talk)
        await wait_all_tasks_blocked()
        talk.session.disconnect(talk.listeners[request])
        store.may_read_logs.set()
        await wait_all_tasks_blocked()
        await goes_on_elsewhere(shop, stack, asked)


async def test_a_copy_carries_the_call_on_whose_first_request_has_left(shop: Shop) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        store, talk = await shop.process(stack)
        store.may_read_logs = trio.Event()
        request, copy = yes(asked, talk), yes(asked, talk)
        await wait_all_tasks_blocked()
        talk.session.disconnect(talk.listeners[request])
        store.may_read_logs.set()
        shop.go_on.set()
        assert await talk.text(copy) == "ordered"
    assert shop.charged == 1


@pytest.mark.parametrize("lands", [True, False], ids=["later", "never"])
async def test_a_claim_that_is_not_confirmed_is_given_back(shop: Shop, lands: bool, autojump_clock: MockClock) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        store, talk = await shop.process(stack)
        store.lateness = lambda _changes: 1.0 if lands else NEVER
        assert (await talk.error(yes(asked, talk)))["code"] == -32000
        store.lateness = in_time
        await trio.sleep(10)
        await goes_on_elsewhere(shop, stack, asked)


async def test_a_claim_that_is_not_confirmed_counts_for_its_principal_whatever_the_store_has_for_the_call(
    shop: Shop, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "UNSETTLED", UNSETTLED._replace(limit=2))
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        crashed, first = await shop.process(stack)
        yes(asked, first)
        await wait_all_tasks_blocked()
        crashed.crash()
        (call_id,) = [key for kind, key in shop.disk.records if kind == CLAIM_KIND]
        store, talk = await shop.process(stack)
        calls = talk.service.calls
        # The first write meets the claim of the process that has ended; the second one is not confirmed.
        writes = iter([None])
        store.lateness = lambda _changes: next(writes, NEVER)
        with pytest.raises(StoreError):
            await calls.call_claims.claim(call_id, 1, "", "ana")
        calls.settling.check_room("bob")
        with pytest.raises(LimitExceeded):
            calls.settling.check_room("ana")
        store.lateness = in_time


async def test_the_next_request_claims_a_call_whose_claim_is_not_confirmed(
    shop: Shop, autojump_clock: MockClock
) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        store, talk = await shop.process(stack)
        store.lateness = lambda _changes: 0.0
        assert (await talk.error(yes(asked, talk)))["code"] == -32000
        store.lateness = in_time
        shop.go_on.set()
        assert await talk.text(yes(asked, talk)) == "ordered"
        # What would have given the claim back has not taken the call from it.
        await trio.sleep(10)
        _, other = await shop.process(stack)
        assert (await other.error(yes(asked, other)))["code"] == -32000
    assert shop.charged == 1


async def test_a_claim_is_given_back_after_a_full_store_has_refused_the_next_request(
    shop: Shop, autojump_clock: MockClock
) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        store, talk = await shop.process(stack)
        entries = store.entries

        async def fail(*_place: object) -> Sequence[bytes]:
            store.on_write = is_full
            raise StoreError("the disk is gone")

        store.entries = fail  # type: ignore[method-assign]
        # The first one has claimed the call and cannot give it back; the second one cannot claim it.
        for _ in range(2):
            assert (await talk.error(yes(asked, talk)))["code"] == -32000
        store.entries, store.on_write = entries, lambda _changes: None  # type: ignore[method-assign]
        await trio.sleep(10)
        await goes_on_elsewhere(shop, stack, asked)


def is_full(_changes: object) -> None:
    raise StoreFull("there is no room")


# several legs


class LongShop(Shop):
    """It asks twice, and charges after each answer."""

    async def order(self, ctx: Context) -> str:
        for each in ("first", "second"):
            await ctx.elicit(f"{each}?", bool)
            await ctx.step(f"charge {each}", self.charge)
        return "ordered"


async def test_each_leg_may_go_on_in_another_process_that_gets_the_newest_state() -> None:
    shop = LongShop()
    async with AsyncExitStack() as stack:
        talks = [(await shop.process(stack))[1] for _ in range(2)]
        first = await talks[0].round(talks[0].leg("order"))
        second = await talks[1].round(yes(first, talks[1]))
        assert await talks[0].text(yes(second, talks[0])) == "ordered"
        assert shop.charged == 2
        refused = await talks[1].error(yes(second, talks[1]))
        assert (refused["code"], "another process" in refused["message"]) == (-32000, True)
    assert shop.charged == 2


async def test_a_call_that_another_process_gave_back_goes_on_where_it_is_parked() -> None:
    shop = LongShop()
    async with AsyncExitStack() as stack:
        _, home = await shop.process(stack)
        first = await home.round(home.leg("order"))
        second = await home.round(yes(first, home))
        store, other = await shop.process(stack)

        async def fail(*_place: object) -> Sequence[bytes]:
            raise StoreError("the disk is gone")

        store.entries = fail  # type: ignore[method-assign]
        assert (await other.error(yes(second, other)))["code"] == -32000
        assert await home.text(yes(second, home)) == "ordered"
    assert shop.charged == 2
