"""The tests of docs/testing.md pass, and the page names what the kit has."""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable

import pytest
import trio
from pages import Names, Page
from trio.testing import MockClock

from trio_mcp import Client, Context, Server
from trio_mcp.testing import Delay, MockClient
from trio_mcp.testing.mock.actions import ACTIONS

PAGE = Page("testing")
ON_SOCKETS = ["test_a_tool_over_http"]
"""They are in tests/wires/docs/test_testing_page.py."""
TESTS = [
    name
    for name in re.findall(r"^(?:async )?def (test_\w+)", "\n".join(PAGE.blocks), re.MULTILINE)
    if name not in ON_SOCKETS
]


@pytest.fixture(scope="module")
def page() -> Names:
    return PAGE.run()


def arguments(test: Callable[..., object], **fixtures: object) -> dict[str, object]:
    return {name: fixtures[name] for name in inspect.signature(test).parameters}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("name", TESTS)
async def test_each_test_of_the_page_passes(page: Names, name: str, era: str, autojump_clock: MockClock) -> None:
    test = page[name]
    async with Client.connect(page["server"], mode=era) as client:
        outcome = test(**arguments(test, mcp_era=era, mcp_client=client, autojump_clock=autojump_clock))
        if inspect.isawaitable(outcome):
            await outcome


def test_the_page_names_every_action() -> None:
    for action in ACTIONS:
        assert f"| `{action.__name__}(" in PAGE.text


# threads and the clock


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
