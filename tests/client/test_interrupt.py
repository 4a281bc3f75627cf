"""Ctrl-C belongs to the main task, wherever it happens to land."""

from __future__ import annotations

import signal

import pytest
import trio
from connected import connected
from scripted import unopened

from trio_mcp import Context, Server

server = Server("noisy")


@server.tool
async def shout(ctx: Context) -> str:
    """Log once."""
    await ctx.log("info", "hello")
    return "done"


def interrupt(_message: object) -> None:
    raise KeyboardInterrupt  # as if the signal had come while a task of the client ran


async def call_it() -> None:
    async with connected(server, mode="legacy", on_log=interrupt) as client:
        await client.call_tool("shout")
        await trio.sleep_forever()


def test_an_interrupt_that_lands_in_a_task_of_the_client_reaches_the_main_task() -> None:
    with pytest.raises(KeyboardInterrupt):
        trio.run(call_it)


def test_an_interrupt_while_a_client_opens_leaves_nothing_behind() -> None:
    async def open_it() -> None:
        async with unopened() as (client, wire, _start):

            async def press() -> None:
                await wire.request("server/discover")
                signal.raise_signal(signal.SIGINT)

            trio.lowlevel.spawn_system_task(press)
            with pytest.raises(KeyboardInterrupt):
                await client.open()
            await wire.end()

    trio.run(open_it)
