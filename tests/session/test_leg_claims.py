"""A state that reaches several processes: one of them carries the call on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest
import trio
from crashing_store import CrashingStore, Disk
from talk import Round, Talk, accept, talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, Server
from trio_mcp.protocol.sealing.request_state import KeyRing
from trio_mcp.runtime import Limits
from trio_mcp.session import ServiceOptions
from trio_mcp.session.calls.claims import CLAIM_KIND
from trio_mcp.storage import StoreError

KEYS = KeyRing.random()
PARK_TTL = 100.0


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

    async def process(self, stack: AsyncExitStack, resume: str = "replay") -> tuple[CrashingStore, Talk]:
        """Start a process."""
        store = CrashingStore(self.disk)
        options = ServiceOptions(keys=KEYS, store=store, actors=Limits(park_ttl=PARK_TTL))
        server = Server("shop", version="1", options=options)
        server.tool(resume=resume)(self.order)  # type: ignore[call-overload]
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


async def test_one_of_several_processes_carries_the_call_on(shop: Shop) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        talks = [(await shop.process(stack))[1] for _ in range(3)]
        requests = [yes(asked, talk) for talk in talks]
        await wait_all_tasks_blocked()
        assert shop.charged == 1
        shop.go_on.set()
        replies = [await talk.reply_to(request) for talk, request in zip(talks, requests, strict=True)]
    assert [reply["result"]["content"][0]["text"] for reply in replies if "result" in reply] == ["ordered"]
    refused = [reply["error"] for reply in replies if "error" in reply]
    assert [error["code"] for error in refused] == [-32000, -32000]
    assert all("another process" in error["message"] for error in refused)


async def test_the_call_of_a_process_that_has_ended_is_taken_over(shop: Shop) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        store, first = await shop.process(stack)
        yes(asked, first)
        await wait_all_tasks_blocked()
        store.crash()
        _, second = await shop.process(stack)
        request = yes(asked, second)
        await wait_all_tasks_blocked()
        shop.go_on.set()
        assert await second.text(request) == "ordered"
    assert shop.charged == 1


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


async def test_a_log_that_cannot_be_read_now_is_an_error_to_try_again_after(shop: Shop) -> None:
    asked = await shop.asked()
    async with AsyncExitStack() as stack:
        store, talk = await shop.process(stack)
        entries = store.entries

        async def fail(*_place: object) -> Sequence[bytes]:
            raise StoreError("the disk is gone")

        store.entries = fail  # type: ignore[method-assign]
        error = await talk.error(yes(asked, talk))
        assert (error["code"], "disk" in error["message"]) == (-32000, False)
        store.entries = entries  # type: ignore[method-assign]
        shop.go_on.set()
        assert await talk.text(yes(asked, talk)) == "ordered"
    assert shop.charged == 1
