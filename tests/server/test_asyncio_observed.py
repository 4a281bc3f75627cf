"""What the tree, the errors of stuck calls and the watchdog know of bodies on asyncio."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import trio
from both_loops import BOUND, Run, beside_trio, in_program, talk, until

from trio_mcp import Client, Context, Server, ServiceOptions


@pytest.mark.parametrize("lock", ["Lock", "Event", "Semaphore"])
def test_the_tree_has_the_line_of_a_body_on_asyncio_and_the_lock_that_it_waits_for(run: Run, lock: str) -> None:
    server = Server("held", asyncio=True)

    async def wait() -> None:
        held = {"Lock": asyncio.Lock(), "Event": asyncio.Event(), "Semaphore": asyncio.Semaphore(0)}[lock]
        if isinstance(held, asyncio.Lock):
            await held.acquire()
        await (held.wait() if isinstance(held, asyncio.Event) else held.acquire())

    @server.tool
    async def hold(ctx: Context) -> None:
        await ctx.info("it holds")
        await wait()

    async def test(client: Client) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "hold")
            (service,) = server.services
            await until(lambda: f"in wait, waits for a asyncio.{lock}" in str(service.tree()))
            assert f"{__file__}:{wait.__code__.co_firstlineno + 4} in wait" in str(service.tree())
            nursery.cancel_scope.cancel()

    run(talk(server, "modern", test))


def test_a_body_that_swallows_its_cancel_is_stuck_until_it_ends_and_is_logged(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("stubborn", asyncio=True, options=ServiceOptions(cancel_grace=0.05))
    release = threading.Event()

    @server.tool
    async def hold() -> None:
        while not release.is_set():
            try:
                await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                continue

    async def test(client: Client) -> None:
        with trio.move_on_after(0.05):
            await client.call_tool("hold")
        (service,) = server.services
        await until(lambda: "stuck" in str(service.tree()) and "in hold" in caplog.text)
        release.set()
        await until(lambda: "hold" not in str(service.tree()))

    run(talk(server, "modern", test))
    assert f'File "{__file__}", line' in caplog.text


LOOPS = {in_program: "the event loop", beside_trio: "the asyncio loop"}


def test_a_body_that_blocks_its_loop_is_named_with_its_line(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    server = Server("slow", asyncio=True, options=ServiceOptions(watchdog=0.05))
    noticed = f"has blocked {LOOPS[run]}"

    @server.tool
    async def compute() -> str:
        # Until the watchdog has noticed it.
        while noticed not in caplog.text:
            time.sleep(0.005)  # noqa: ASYNC251  that is the mistake
        return "done"

    async def test(client: Client) -> None:
        for count in range(1, 3):
            caplog.clear()
            assert (await client.call_tool("compute")).text == "done"
            assert "in compute" in caplog.text
            (service,) = server.services
            assert service.statistics().blocked == count

    run(talk(server, "modern", test))


def test_a_body_on_trio_is_not_late_while_another_blocks_the_asyncio_loop(caplog: pytest.LogCaptureFixture) -> None:
    # Long enough that a busy machine does not make the loop of Trio late.
    server = Server("slow", options=ServiceOptions(watchdog=0.5))
    release = threading.Event()

    @server.tool(asyncio=True)
    async def compute() -> bool:
        return release.wait(BOUND)

    @server.tool
    async def quick() -> str:
        return "quick"

    async def test(client: Client) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "compute")
            await until(lambda: "has blocked the asyncio loop" in caplog.text)
            assert (await client.call_tool("quick")).text == "quick"
            release.set()

    beside_trio(talk(server, "modern", test))
    assert "has blocked the event loop" not in caplog.text
