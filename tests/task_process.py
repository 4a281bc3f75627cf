"""Processes of one server whose tasks are in a durable store, one after the other or at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from crashing_store import CrashingStore, Disk, opened
from talk import talk_to
from task_talk import LegacyTask, ModernTask
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, Server
from trio_mcp.session import KeyRing, ServiceOptions
from trio_mcp.session.tasks.record import TaskRecord, storage_key

KEYS = KeyRing.random()


class Work:
    def __init__(self) -> None:
        self.charged = 0
        self.runs = 0
        self.may_ask: trio.Event | None = None
        """Set when orders may ask; None lets them ask at once."""

    async def order(self, ctx: Context) -> str:
        self.runs += 1
        receipt = await ctx.step("charge", self.charge)
        if self.may_ask is not None:
            await self.may_ask.wait()
        answer = await ctx.elicit("Keep it?", bool)
        again = await ctx.elicit("Really?", bool)
        return f"{receipt} {answer.action} {again.action}"

    async def quick(self) -> str:
        return "done"

    def charge(self) -> int:
        self.charged += 1
        return self.charged


class Process:
    """One process of a server with a store that keeps what was committed."""

    def __init__(self, disk: Disk, work: Work, resume: str = "replay", keys: KeyRing = KEYS) -> None:
        self.store = CrashingStore(disk)
        self.server = Server("tester", version="1", options=ServiceOptions(keys=keys, store=self.store))
        self.server.tool(task=True, resume=resume)(work.order)  # type: ignore[call-overload]
        self.server.tool(task=True)(work.quick)

    @asynccontextmanager
    async def task(
        self, era: type[LegacyTask], task_id: str = "", *, graceful: bool = False
    ) -> AsyncIterator[LegacyTask]:
        async with talk_to(self.server, principal="alice") as talk:
            task = era(talk)
            task.id = task_id
            await task.open()
            await wait_all_tasks_blocked()
            yield task
            if not graceful:
                self.store.crash()
        await self.store.aclose()


async def left(disk: Disk, work: Work, era: type[LegacyTask] = ModernTask, resume: str = "replay") -> LegacyTask:
    """Return an order as a task, whose process was killed when nothing more happened by itself."""
    async with Process(disk, work, resume).task(era) as task:
        await task.start("order")
        await wait_all_tasks_blocked()
    return task


def record_of(disk: Disk, task_id: str) -> TaskRecord:
    """Return what is on a disk of a task."""
    return TaskRecord.decode(opened(disk.records["task", key_of(task_id)], KEYS))


def key_of(task_id: str) -> str:
    """Return the key of a task's record."""
    key = storage_key(task_id)
    assert key is not None
    return key
