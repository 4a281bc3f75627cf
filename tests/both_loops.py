"""Running a Trio function in an asyncio program, and where no asyncio program is."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import trio

from trio_mcp import Client, Server, accept
from trio_mcp.session.event_loop import await_on_trio
from trio_mcp.types import CallToolResult, ElicitRequestFormParams, ElicitResult

BOUND = 30.0
T = TypeVar("T")

Run = Callable[[Callable[[], Awaitable[object]]], None]


async def in_this_loop(main: Callable[[], Awaitable[T]]) -> T:
    """Run a Trio function in the asyncio program that awaits this."""
    return await asyncio.wait_for(await_on_trio(main), BOUND)


def in_program(main: Callable[[], Awaitable[object]]) -> None:
    """Run a Trio function as an asyncio program does, in whose loop Trio is a guest."""
    asyncio.run(in_this_loop(main))


def beside_trio(main: Callable[[], Awaitable[object]]) -> None:
    """Run a Trio function where no asyncio program is; its asyncio code has a loop in a thread."""

    async def bounded() -> None:
        with trio.fail_after(BOUND):
            await main()

    trio.run(bounded)
    assert "trio_mcp asyncio loop" not in {thread.name for thread in threading.enumerate()}


def on_both_loops(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test on Trio in an asyncio program, and where there is none."""

    @functools.wraps(test)
    def runs(run: Run, **arguments: object) -> None:
        run(functools.partial(test, **arguments))

    own = inspect.signature(test)
    takes = [inspect.Parameter("run", inspect.Parameter.POSITIONAL_OR_KEYWORD), *own.parameters.values()]
    runs.__signature__ = own.replace(parameters=takes)  # type: ignore[attr-defined]  what pytest reads
    return runs


def on_elicit(_asked: ElicitRequestFormParams) -> ElicitResult:
    return accept(value=2)


def talk(server: Server, mode: str, test: Callable[[Client], Awaitable[None]], **options: Any) -> Callable[[], Any]:
    """Return what opens a client of a server, and runs a test with it."""

    async def main() -> None:
        async with Client.connect(server, mode=mode, on_elicit=on_elicit, **options) as client:
            await test(client)

    return main


def called(run: Run, server: Server, mode: str, *names: str) -> list[CallToolResult]:
    """Call tools of a server, one after the other, and return their results."""
    results: list[CallToolResult] = []

    async def call(client: Client) -> None:
        results.extend([await client.call_tool(name) for name in names])

    run(talk(server, mode, call))
    return results


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until a condition holds; each run is bounded."""
    while not condition():  # noqa: ASYNC110  what changes it is in another thread, or in the service
        await trio.sleep(0.001)
