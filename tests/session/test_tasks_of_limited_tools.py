"""Tasks of a tool with `limit=`: one that goes on was admitted before, and waits for its place."""

from __future__ import annotations

import pytest
import trio
from crashing_store import CrashingStore, Disk
from talk import talk_to
from task_talk import DECLARES, ModernTask
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, Server, ServiceOptions
from trio_mcp.protocol.sealing.request_state import KeyRing

KEYS = KeyRing.random()


async def asking(ctx: Context) -> str:
    for number in range(20):
        await ctx.step(f"step {number}", int)
    return (await ctx.elicit("Sure?", bool)).action


async def selling(ctx: Context) -> str:
    await ctx.become_task()
    await trio.lowlevel.checkpoint()
    return "sold"


async def test_tasks_that_wait_for_their_users_survive_a_restart_however_many_there_are() -> None:
    disk, tasks = Disk(), list[ModernTask]()

    def server(store: CrashingStore) -> Server:
        server = Server("tester", options=ServiceOptions(keys=KEYS, store=store))
        server.tool(task=True, resume="replay", limit=1)(asking)
        return server

    store = CrashingStore(disk)
    async with talk_to(server(store)) as talk:
        for _ in range(3):
            tasks.append(ModernTask(talk))
            await tasks[-1].start("asking")
            assert await tasks[-1].status() == "input_required"
        store.crash()
    async with talk_to(server(CrashingStore(disk))) as talk:
        for task in tasks:
            task.talk = talk
            assert await task.status() == "input_required"
        for task in tasks:
            await task.answer(True)
            assert await task.status() == "completed"


@pytest.mark.parametrize("turn", range(4))
async def test_a_call_that_becomes_a_task_leaves_its_place_to_it(turn: int) -> None:
    """However Trio orders the two."""
    server = Server("tester", options=ServiceOptions(keys=KEYS))
    server.tool(task="later", resume="replay", limit=1)(selling)
    async with talk_to(server) as talk:
        for _ in range(4):
            task = ModernTask(talk)
            task.id = task.created(await task.reply(talk.leg("selling", capabilities=DECLARES)))["taskId"]
            await wait_all_tasks_blocked()
            assert (await task.result())["content"][0]["text"] == "sold"
