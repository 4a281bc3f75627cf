"""A call that hangs says where: the tree and the log of a stuck call name the line of the author's code."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from one_tool import call_of
from talk import Legacy, Modern, offering, play
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Context, SyncContext

BOUND = 10


def line_with(text: str) -> int:
    """The number of the line of this file that ends with a comment."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return number


def at(comment: str, function: str, more: str = "") -> str:
    """Return how a line is shown."""
    return f"{__file__}:{line_with(comment)} in {function}{more}"


async def inner() -> None:
    await trio.sleep_forever()  # sleeps


class Wrapped:
    def __await__(self) -> Any:
        return inner().__await__()


async def works(ctx: Context) -> None:
    await inner()


async def works_in_an_object(ctx: Context) -> None:
    await Wrapped()


async def works_in_a_nursery(ctx: Context) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(inner)


@pytest.mark.parametrize("tool", [works, works_in_an_object, works_in_a_nursery])
async def test_a_running_call_is_at_the_innermost_line_of_its_author(
    tool: Callable[..., Any], era: type[Legacy]
) -> None:
    call = await call_of(tool, era)
    assert str(call.at) == at("sleeps", "inner")
    assert f"running at {call.at}" in str(call)
    assert f"{Path(__file__).name}:{line_with('sleeps')} in inner" in str(call)


async def branches(ctx: Context) -> None:
    async def ask(child: Context) -> None:
        await child.elicit("Sure?", bool)

    await ctx.branch_all(works, ask)


async def test_each_running_branch_has_its_line_and_what_waits_for_a_client_has_none(era: type[Legacy]) -> None:
    call = await call_of(branches, era)
    assert call.at is None
    assert [branch.at and str(branch.at) for branch in call.branches] == [at("sleeps", "inner"), None]


async def test_a_call_that_waits_for_a_lock_is_shown_as_waiting(era: type[Legacy]) -> None:
    lock = trio.Lock()

    async def update(ctx: Context) -> None:
        async with lock:  # locks
            """Update it."""

    await lock.acquire()
    call = await call_of(update, era)
    assert str(call.at) == at("locks", "update", ", waits for a trio.Lock")
    assert "waits for a trio.Lock" in str(call)


async def test_a_plain_function_is_at_its_line_in_the_thread(era: type[Legacy]) -> None:
    started, go_on = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()

    def read() -> None:
        token.run_sync_soon(started.set)
        go_on.wait(BOUND)  # reads

    def plain(ctx: SyncContext) -> None:
        read()

    async with play(offering(plain), era) as player:
        await player.call("plain")
        with trio.fail_after(BOUND):
            await started.wait()
            while str((call := player.talk.service.tree().calls[0]).at) != at("reads", "read", ", in a thread"):
                await trio.lowlevel.checkpoint()
        assert "in a thread" in str(call)
        go_on.set()


async def test_a_step_in_a_thread_of_an_async_function_is_at_its_await(autojump_clock: MockClock) -> None:
    go_on, started = threading.Event(), trio.Event()
    token = trio.lowlevel.current_trio_token()

    def wait() -> None:
        token.run_sync_soon(started.set)
        go_on.wait(BOUND)

    async def loads(ctx: Context) -> None:
        await trio.to_thread.run_sync(wait)  # loads

    async with play(offering(loads), Modern) as player:
        await player.call("loads")
        await started.wait()
        (call,) = player.talk.service.tree().calls
        assert str(call.at) == at("loads", "loads", ", in a thread")
        go_on.set()


async def test_the_log_of_a_stuck_call_names_its_line(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    released = trio.Event()

    async def deaf(ctx: Context) -> None:
        with trio.CancelScope(shield=True):
            await released.wait()  # deaf

    async with play(offering(deaf), Modern) as player:
        request = await player.call("deaf")
        await wait_all_tasks_blocked()
        player.talk.cancel(request)
        await trio.sleep(10)
        (call,) = player.talk.service.tree().calls
        assert str(call.at) == at("deaf", "deaf", ", waits for a trio.Event")
        released.set()
        await wait_all_tasks_blocked()
    (record,) = [record for record in caplog.records if "is stuck" in record.getMessage()]
    assert str(call.at) in record.getMessage().splitlines()[0]
