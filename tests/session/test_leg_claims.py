"""A state that reaches several processes: one of them carries the call on."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
import trio
from late_store import NEVER, in_time
from shared_disk import Shop, yes
from talk import Round
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, Server
from trio_mcp.errors import LimitExceeded
from trio_mcp.session import Limits
from trio_mcp.session.recovery import settling
from trio_mcp.session.recovery.claims import CLAIM_KIND
from trio_mcp.stores import StoreError, StoreFull

PARK_TTL = 100.0


async def wait() -> None:
    await trio.sleep_forever()


class Branch(Shop):
    """It has another tool, which waits."""

    def add_tools(self, server: Server) -> None:
        super().add_tools(server)
        server.tool(wait)


@pytest.fixture
def shop() -> Branch:
    return Branch()


async def test_a_copy_for_the_same_process_joins_the_call(shop: Shop) -> None:
    asked = await shop.asked()
    async with shop.process() as (_, talk):
        requests = [yes(asked, talk) for _ in range(2)]
        await wait_all_tasks_blocked()
        shop.go_on.set()
        replies = [await talk.receive() for _ in requests]
    assert {reply["id"]: reply["result"]["content"][0]["text"] for reply in replies} == dict.fromkeys(
        requests, "shipped"
    )
    assert shop.done == ["ship"]


async def test_a_claim_expires_with_the_state(shop: Shop) -> None:
    asked = await shop.asked()
    async with shop.process(actors=Limits(park_ttl=PARK_TTL)) as (_, talk):
        yes(asked, talk)
        await wait_all_tasks_blocked()
        (claim,) = [record for (kind, _), record in shop.disk.records.items() if kind == CLAIM_KIND]
        assert PARK_TTL - 10 < claim.expires_at - time.time() <= PARK_TTL


async def test_without_its_claim_no_call_is_carried_on(shop: Shop) -> None:
    asked = await shop.asked()
    async with shop.process() as (store, talk):
        store.on_write = is_full
        assert (await talk.error(yes(asked, talk)))["code"] == -32000
        assert shop.done == []
        # The state is good for another try.
        store.on_write = in_time
        shop.go_on.set()
        assert await talk.text(yes(asked, talk)) == "shipped"


async def test_a_call_that_must_not_run_twice_claims_nothing(shop: Shop) -> None:
    shop.resume = "parked"
    asked = await shop.asked()
    async with shop.process() as (_, talk):
        assert "lost" in await talk.failure(yes(asked, talk))
    assert not shop.disk.records


# a claim of which nothing comes


async def goes_on_elsewhere(shop: Shop, asked: Round) -> None:
    """The claim that a living process has made keeps no other process from the call."""
    shop.go_on.set()
    async with shop.process() as (_, other):
        assert await other.text(yes(asked, other)) == "shipped"
    assert shop.done == ["ship"]


async def test_a_process_that_is_full_gives_its_claim_back(shop: Shop) -> None:
    asked = await shop.asked()
    async with shop.process(actors=Limits(actors=1)) as (_, full):
        full.leg("wait")
        await wait_all_tasks_blocked()
        assert (await full.error(yes(asked, full)))["code"] == -32000
        await goes_on_elsewhere(shop, asked)


async def is_gone(*_place: object) -> Sequence[bytes]:
    raise StoreError("the disk is gone")


async def test_a_claim_is_given_back_if_the_log_cannot_be_read(shop: Shop) -> None:
    asked = await shop.asked()
    async with shop.process() as (store, talk):
        store.entries = is_gone  # type: ignore[method-assign]
        error = await talk.error(yes(asked, talk))
        assert (error["code"], "disk" in error["message"]) == (-32000, False)
        await goes_on_elsewhere(shop, asked)


async def test_a_claim_is_given_back_if_the_client_leaves_before_the_call_starts(shop: Shop) -> None:
    asked = await shop.asked()
    async with shop.process() as (store, talk):
        store.may_read_logs = trio.Event()
        request = yes(asked, talk)
        await wait_all_tasks_blocked()
        talk.session.disconnect(talk.listeners[request])
        store.may_read_logs.set()
        await wait_all_tasks_blocked()
        await goes_on_elsewhere(shop, asked)


async def test_a_copy_carries_the_call_on_whose_first_request_has_left(shop: Shop) -> None:
    asked = await shop.asked()
    async with shop.process() as (store, talk):
        store.may_read_logs = trio.Event()
        request, copy = yes(asked, talk), yes(asked, talk)
        await wait_all_tasks_blocked()
        talk.session.disconnect(talk.listeners[request])
        store.may_read_logs.set()
        shop.go_on.set()
        assert await talk.text(copy) == "shipped"
    assert shop.done == ["ship"]


@pytest.mark.parametrize("lands", [True, False], ids=["later", "never"])
async def test_a_claim_that_is_not_confirmed_is_given_back(shop: Shop, lands: bool) -> None:
    asked = await shop.asked()
    async with shop.process() as (store, talk):
        store.lateness = lambda _changes: 1.0 if lands else NEVER
        assert (await talk.error(yes(asked, talk)))["code"] == -32000
        store.lateness = in_time
        await trio.sleep(10)
        await goes_on_elsewhere(shop, asked)


async def test_a_claim_that_is_not_confirmed_counts_for_its_principal_whatever_the_store_has_for_the_call(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "UNSETTLED", settling.UNSETTLED._replace(limit=2))
    asked = await shop.asked()
    async with shop.process() as (crashed, first), shop.process() as (store, talk):
        yes(asked, first)
        await wait_all_tasks_blocked()
        crashed.crash()
        (call_id,) = [key for kind, key in shop.disk.records if kind == CLAIM_KIND]
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


async def test_the_next_request_claims_a_call_whose_claim_is_not_confirmed(shop: Shop) -> None:
    asked = await shop.asked()
    async with shop.process() as (store, talk):
        store.lateness = lambda _changes: 0.0
        assert (await talk.error(yes(asked, talk)))["code"] == -32000
        store.lateness = in_time
        shop.go_on.set()
        assert await talk.text(yes(asked, talk)) == "shipped"
        # What would have given the claim back has not taken the call from it.
        await trio.sleep(10)
        async with shop.process() as (_, other):
            assert (await other.error(yes(asked, other)))["code"] == -32000
    assert shop.done == ["ship"]


async def test_a_claim_is_given_back_after_a_full_store_has_refused_the_next_request(shop: Shop) -> None:
    asked = await shop.asked()
    async with shop.process() as (store, talk):
        entries = store.entries

        async def fail(*_place: object) -> Sequence[bytes]:
            store.on_write = is_full
            raise StoreError("the disk is gone")

        store.entries = fail  # type: ignore[method-assign]
        # The first one has claimed the call and cannot give it back; the second one cannot claim it.
        for _ in range(2):
            assert (await talk.error(yes(asked, talk)))["code"] == -32000
        store.entries, store.on_write = entries, in_time  # type: ignore[method-assign]
        await trio.sleep(10)
        await goes_on_elsewhere(shop, asked)


def is_full(_changes: object) -> None:
    raise StoreFull("there is no room")


# several legs


class LongShop(Shop):
    """It asks twice, and charges after each answer."""

    async def order(self, ctx: Context) -> str:
        for each in ("first", "second"):
            await ctx.elicit(f"{each}?", bool)
            await ctx.step(f"charge {each}", self.does(each))
        return "shipped"


async def test_each_leg_may_go_on_in_another_process_that_gets_the_newest_state() -> None:
    shop = LongShop()
    async with shop.process() as (_, here), shop.process() as (_, there):
        first = await here.round(here.leg("order"))
        second = await there.round(yes(first, there))
        assert await here.text(yes(second, here)) == "shipped"
        assert shop.done == ["first", "second"]
        refused = await there.error(yes(second, there))
        assert (refused["code"], "another process" in refused["message"]) == (-32000, True)
    assert shop.done == ["first", "second"]


async def test_a_call_that_another_process_gave_back_goes_on_where_it_is_parked() -> None:
    shop = LongShop()
    async with shop.process() as (_, home), shop.process() as (store, other):
        first = await home.round(home.leg("order"))
        second = await home.round(yes(first, home))
        store.entries = is_gone  # type: ignore[method-assign]
        assert (await other.error(yes(second, other)))["code"] == -32000
        assert await home.text(yes(second, home)) == "shipped"
    assert shop.done == ["first", "second"]
