"""Threads of tools beside the virtual clock of a test, as docs/testing.md promises."""

from __future__ import annotations

import time

import trio
from trio.testing import MockClock

from trio_mcp import Context, Server
from trio_mcp.testing import Delay, MockClient


def work() -> None:
    time.sleep(0.05)  # the clock jumps after less than that, if a task waits for a time


async def works_around_a_question(ctx: Context) -> str:
    await trio.to_thread.run_sync(work)
    answer = await ctx.elicit("?", bool, timeout=300)
    await trio.to_thread.run_sync(work)
    return answer.action


async def works_below_a_timeout() -> str:
    with trio.move_on_after(60) as scope:
        await trio.to_thread.run_sync(work, abandon_on_cancel=True)
    return "expired" if scope.cancelled_caught else "in time"


async def test_threads_around_a_question_are_safe_with_the_clock(mcp_era: str, autojump_clock: MockClock) -> None:
    client = MockClient(elicits=[Delay(60, True)], era=mcp_era)
    assert (await client.call(works_around_a_question)).text == "accept"


async def test_a_timeout_expires_while_a_thread_works(mcp_era: str, autojump_clock: MockClock) -> None:
    server = Server("plain")
    server.add_tool(work, timeout=60)
    assert (await MockClient(era=mcp_era).call((server, "work"))).is_error
    assert (await MockClient(era=mcp_era).call(works_below_a_timeout)).text == "expired"
