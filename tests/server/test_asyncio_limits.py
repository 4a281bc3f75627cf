"""What asyncio beside Trio cannot do, as the page says it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from types import FrameType

import pytest
import trio
import trio.testing
from both_loops import BOUND

from trio_mcp import Client, Context, Server
from trio_mcp.types import ElicitRequestFormParams, ElicitResult


def test_a_task_that_a_body_does_not_await_outlives_its_call_and_loses_its_context() -> None:
    server, tasks = Server("shop", asyncio=True), list[asyncio.Task[None]]()

    @server.tool
    async def leave_behind(ctx: Context) -> str:
        began = asyncio.Event()

        async def outlive() -> None:
            began.set()
            await ctx.elicit("Still there?")

        tasks.append(asyncio.create_task(outlive()))
        await began.wait()
        return "done"

    async def never(_asked: ElicitRequestFormParams) -> ElicitResult:
        return await asyncio.Future[ElicitResult]()

    async def main() -> None:
        async with Client.connect(server, on_elicit=never) as client:
            assert (await client.call_tool("leave_behind")).text == "done"
            (task,) = tasks
            with pytest.raises((asyncio.CancelledError, RuntimeError)):
                await task

    asyncio.run(asyncio.wait_for(main(), BOUND))


def test_a_signal_receiver_of_trio_takes_the_signal_from_the_program_until_it_is_closed() -> None:
    server, heard = Server("shop"), list[str]()

    def host(_number: int, _frame: FrameType | None) -> None:
        heard.append("host")

    @server.tool
    async def listen() -> None:
        with trio.open_signal_receiver(signal.SIGUSR2) as signals:
            signal.raise_signal(signal.SIGUSR2)
            async for _ in signals:
                heard.append("tool")
                break

    async def main() -> None:
        async with Client.connect(server) as client:
            await client.call_tool("listen")
            signal.raise_signal(signal.SIGUSR2)

    earlier = signal.signal(signal.SIGUSR2, host)
    try:
        asyncio.run(asyncio.wait_for(main(), BOUND))
        assert heard == ["tool", "host"]
    finally:
        signal.signal(signal.SIGUSR2, earlier)


NESTED = """
import asyncio
import nest_asyncio2
from trio_mcp import Client, Server
nest_asyncio2.apply()
server = Server("nested")
@server.tool
async def quick() -> str:
    return "quick"
async def main():
    async with Client.connect(server) as client:
        def nest(*_):
            call = asyncio.wait_for(client.call_tool("quick"), 1)
            asyncio.get_event_loop().run_until_complete(call)
        await client.call_tool("quick")
        asyncio.get_event_loop().run_until_complete(client.call_tool("quick"))
        print("beside Trio it works")
        @server.tool
        async def talk() -> None:
            nest()
        await client.call_tool("talk")
asyncio.run(main())
"""


def test_a_loop_that_is_nested_in_a_trio_function_and_needs_trio_breaks_it() -> None:
    done = subprocess.run([sys.executable, "-c", NESTED], capture_output=True, text=True, timeout=BOUND)
    assert done.stdout == "beside Trio it works\n"
    assert "TrioInternalError" in done.stderr


@pytest.mark.parametrize("on_asyncio", [True, False])
def test_a_mock_clock_moves_the_time_of_trio_only(on_asyncio: bool) -> None:
    server, began = Server("timed"), threading.Event()

    @server.tool(asyncio=on_asyncio)
    async def wait() -> str:
        began.set()
        await (asyncio if on_asyncio else trio).sleep(3_600)
        return "waited"

    async def main() -> None:
        async with Client.connect(server) as client:
            with trio.move_on_after(7_200) as scope:
                assert (await client.call_tool("wait")).text == "waited"
            # The clock has jumped over the hours that the body is still waiting for.
            assert scope.cancelled_caught is on_asyncio
            assert began.is_set()

    clock = trio.testing.MockClock(autojump_threshold=0.01)
    trio.run(main, clock=clock)


def test_a_body_that_computes_holds_up_the_calls_of_both_loops_and_loses_none() -> None:
    server, ended = Server("slow", asyncio=True), list[str]()

    @server.tool
    async def compute() -> str:
        began.set()
        # Blocks the thread of both loops until another thread goes on.
        release.wait(BOUND)
        ended.append("compute")
        return "computed"

    @server.tool(asyncio=False)
    async def quick() -> str:
        ended.append("quick")
        return "quick"

    began, release = threading.Event(), threading.Event()

    async def main() -> None:
        async with Client.connect(server) as client, asyncio.TaskGroup() as group:
            slow = group.create_task(client.call_tool("compute"))
            while not began.is_set():
                group.create_task(asyncio.to_thread(release_when, began, release))
                await asyncio.sleep(0)
            quick_call = group.create_task(client.call_tool("quick"))
        assert (slow.result().text, quick_call.result().text) == ("computed", "quick")

    def release_when(begun: threading.Event, then: threading.Event) -> None:
        begun.wait(BOUND)
        then.set()

    asyncio.run(asyncio.wait_for(main(), BOUND))
    assert ended == ["compute", "quick"]
