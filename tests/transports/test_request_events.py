"""What our own server hands to the application besides `receive`: the events of a request, which need no cancel."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_mcp.runtime import MemoryBudget
from trio_mcp_transports.asgi.messages import events_of
from trio_mcp_transports.hypercorn.inbox import PREPAID_BYTES, Inbox


def part(body: bytes, *, more: bool = False) -> Any:
    return {"type": "http.request", "body": body, "more_body": more}


GONE: Any = {"type": "http.disconnect"}


@pytest.fixture
def budget() -> MemoryBudget:
    return MemoryBudget(10**9)


@pytest.fixture
def inbox(budget: MemoryBudget) -> Inbox:
    return Inbox(9, budget.open())


async def test_a_body_that_came_whole_is_taken_at_once(inbox: Inbox) -> None:
    assert inbox.whole_body() is None
    await inbox.put(part(b"all", more=True))
    await inbox.put(part(b""))
    assert inbox.whole_body() == b"all"
    assert inbox.whole_body() is None


@pytest.mark.parametrize("rest", [[], [part(b"rest")]])
async def test_nothing_is_taken_of_a_body_that_came_in_parts(inbox: Inbox, rest: list[Any]) -> None:
    await inbox.put(part(b"first", more=True))
    for event in rest:
        await inbox.put(event)
    assert inbox.whole_body() is None
    assert (await inbox.receive())["body"] == b"first"


async def test_the_wait_for_the_disconnect_drops_what_comes_before_it(inbox: Inbox, budget: MemoryBudget) -> None:
    await inbox.put(part(bytes(PREPAID_BYTES), more=True))
    async with trio.open_nursery() as nursery:
        gone: list[bool] = []

        async def wait() -> None:
            gone.append(await inbox.wait_disconnect())

        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        await inbox.put(part(b"more", more=True))
        await wait_all_tasks_blocked()
        assert not gone
        assert budget.drawn == 0
        await inbox.put(GONE)
    assert gone == [True]
    assert await inbox.wait_disconnect()
    assert await inbox.receive() == GONE


async def test_the_wait_for_the_disconnect_can_be_ended_again_and_again(inbox: Inbox) -> None:
    inbox.stop_waiting()  # nothing waits: the next wait is not ended by it
    for _ in range(2):
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                assert not await inbox.wait_disconnect()

            nursery.start_soon(wait)
            await wait_all_tasks_blocked()
            inbox.stop_waiting()


async def test_what_is_queued_beyond_the_connections_fixed_cost_is_drawn_whole(
    inbox: Inbox, budget: MemoryBudget
) -> None:
    await inbox.put(part(bytes(PREPAID_BYTES // 2), more=True))
    assert budget.drawn == 0
    await inbox.put(part(bytes(PREPAID_BYTES // 2), more=True))
    assert budget.drawn > PREPAID_BYTES
    await inbox.receive()
    assert budget.drawn == 0


async def test_an_exchange_that_has_ended_holds_nothing_and_takes_nothing_more(
    inbox: Inbox, budget: MemoryBudget
) -> None:
    with inbox:
        await inbox.put(part(bytes(2 * PREPAID_BYTES), more=True))
    await inbox.put(part(bytes(2 * PREPAID_BYTES), more=True))
    assert budget.drawn == 0


async def test_a_middleware_with_its_own_receive_is_asked_for_every_event(inbox: Inbox) -> None:
    async def receive() -> Any:
        return await inbox.receive()

    assert events_of(inbox.receive) is inbox
    assert events_of(receive) is None
