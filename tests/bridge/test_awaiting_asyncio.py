"""Asyncio code that a Trio task awaits: its values, its errors, and cancels both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context

import pytest
import trio
from on_asyncio import BOUND, run

from trio_mcp.bridge import Guest, TrioCall, hold_guest


def on_both(test: Callable[[Guest], Awaitable[None]]) -> None:
    """Run a test on Trio, as the guest of an asyncio loop."""

    async def main() -> None:
        guest = await hold_guest()
        try:
            await TrioCall(guest, lambda: test(guest)).result(copy_context())
        finally:
            guest.release()
            await guest.wait_ended()

    run(main)


def test_a_value_and_an_error_come_back() -> None:
    async def fine() -> str:
        await asyncio.sleep(0)
        return "fine"

    async def broken() -> None:
        raise KeyError("broken")

    async def test(guest: Guest) -> None:
        assert await guest.run(fine()) == "fine"
        with pytest.raises(KeyError):
            await guest.run(broken())
        future: asyncio.Future[int] = guest.loop.create_future()
        guest.loop.call_soon(future.set_result, 3)
        assert await guest.run(future) == 3

    on_both(test)


def test_a_value_that_comes_in_spite_of_a_cancel_is_returned() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(BOUND)
        except asyncio.CancelledError:
            return "kept"
        return ""

    async def test(guest: Guest) -> None:
        with trio.move_on_after(0.01):
            assert await guest.run(stubborn()) == "kept"

    on_both(test)


def test_what_is_cancelled_before_its_first_step_cleans_up_all_the_same() -> None:
    events = list[str]()

    async def opened() -> None:
        try:
            events.append("began")
            await asyncio.sleep(BOUND)
        finally:
            events.append("ended")

    async def test(guest: Guest) -> None:
        with trio.CancelScope() as scope:
            scope.cancel()
            await guest.run(opened())
        assert events == ["began", "ended"]

    on_both(test)


def test_a_task_that_the_loop_cancels_before_its_first_step_fails_and_is_never_begun() -> None:
    async def test(guest: Guest) -> None:
        def cancel() -> None:
            (task,) = (each for each in asyncio.all_tasks() if each.get_name() == "asyncio code that Trio awaits")
            task.cancel()

        # Before the first step of the task, which is made in this turn.
        guest.loop.call_soon(cancel)
        with pytest.raises(RuntimeError, match="cancelled by asyncio"):
            await guest.run(asyncio.sleep(0))

    on_both(test)
