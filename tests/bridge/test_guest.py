"""One Trio run for an asyncio loop: when it starts and ends, what it leaves, and what it does when Trio fails."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from contextvars import copy_context
from types import FrameType

import pytest
import trio
from on_asyncio import BOUND, on_asyncio

from trio_mcp.bridge import TrioCall, hold_guest


async def call_trio(function: object) -> object:
    guest = await hold_guest()
    try:
        return await TrioCall(guest, function).result(copy_context())
    finally:
        guest.release()
        await guest.wait_ended()


@on_asyncio
async def test_users_of_a_loop_share_one_run_and_the_last_one_ends_it() -> None:
    first, second = await hold_guest(), await hold_guest()
    assert first is second
    first.release()
    assert not first.is_ending
    second.release()
    assert first.is_ending
    third = await hold_guest()
    assert third is not first
    third.release()
    await third.wait_ended()


@on_asyncio
async def test_a_cancel_during_the_end_is_raised_when_trio_has_ended() -> None:
    guest = await hold_guest()
    guest.release()
    ending = asyncio.create_task(guest.wait_ended())
    await asyncio.sleep(0)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    assert "ended" in repr(guest)


@on_asyncio
async def test_a_trio_function_that_fails_with_cancels_raises_the_rest() -> None:
    async def fail() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise ValueError("broken")

    with pytest.raises(ExceptionGroup) as caught:
        await call_trio(fail)
    assert caught.group_contains(ValueError)


@on_asyncio
async def test_a_trio_function_finishes_its_shielded_clean_up_before_the_cancel_is_raised() -> None:
    events = list[str]()

    async def careful() -> None:
        began.set()
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
            events.append("clean")

    began = asyncio.Event()

    task = asyncio.create_task(call_trio(careful))
    await began.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert events == ["clean"]


@on_asyncio
async def test_a_system_task_that_raises_fails_open_calls_and_the_next_call_starts_another_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def crash() -> None:
        raise ValueError("bug")

    async def open_call() -> None:
        trio.lowlevel.spawn_system_task(crash)
        await trio.sleep_forever()

    async def fine() -> str:
        return "fine"

    with pytest.raises(RuntimeError):
        await call_trio(open_call)
    assert await call_trio(fine) == "fine"
    assert [record.name for record in caplog.records] == ["trio_mcp.bridge"]


def test_the_handlers_of_signals_stay_those_of_the_program() -> None:
    def mine(_number: int, _frame: FrameType | None) -> None: ...

    def handlers() -> list[object]:
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]

    async def main() -> None:
        before = handlers()
        guest = await hold_guest()
        assert handlers() == before
        guest.release()
        await guest.wait_ended()
        assert handlers() == before

    for handler in (signal.default_int_handler, mine):
        earlier = signal.signal(signal.SIGINT, handler)
        try:
            loop = asyncio.new_event_loop()
            # Not `run`, which handles SIGINT itself.
            loop.run_until_complete(asyncio.wait_for(main(), BOUND))
            loop.close()
            assert signal.getsignal(signal.SIGINT) is handler
        finally:
            signal.signal(signal.SIGINT, earlier)


ABANDONED = """
import asyncio, warnings
warnings.simplefilter("ignore")
from trio_mcp import Client, Server
first = asyncio.new_event_loop()
client = Client.connect(Server("s"))
first.run_until_complete(client.open())
first.close()
async def again():
    await Client.connect(Server("s")).open()
try:
    asyncio.run(again())
except RuntimeError as error:
    print(error)
"""


def test_a_loop_that_was_closed_with_an_open_client_is_named_when_trio_cannot_start_again() -> None:
    done = subprocess.run([sys.executable, "-c", ABANDONED], capture_output=True, text=True, timeout=BOUND)
    assert "was closed while a client" in done.stdout, done.stderr


def test_two_loops_of_a_thread_do_not_share_a_run() -> None:
    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        guest = first.run_until_complete(hold_guest())
        with pytest.raises(RuntimeError, match="another event loop"):
            second.run_until_complete(hold_guest())
        guest.release()
        first.run_until_complete(guest.wait_ended())
        again = second.run_until_complete(hold_guest())
        again.release()
        second.run_until_complete(again.wait_ended())
    finally:
        first.close()
        second.close()


@on_asyncio
async def test_a_run_that_another_library_has_started_as_a_guest_is_named_by_trio() -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    trio.lowlevel.start_guest_run(
        trio.sleep,
        0.05,
        run_sync_soon_threadsafe=loop.call_soon_threadsafe,
        done_callback=ended.set_result,
        host_uses_signal_set_wakeup_fd=True,
    )
    with pytest.raises(RuntimeError, match="from inside a run"):
        await hold_guest()
    (await ended).unwrap()
    # It has taken nothing from the next one.
    guest = await hold_guest()
    guest.release()
    await guest.wait_ended()
