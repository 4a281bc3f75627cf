"""Tasks that are not created after all: the caller hears why, and nothing of them remains."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from crashing_store import Change, CrashingStore, Disk, stored_names
from talk import Talk, talk_to
from task_talk import LegacyTask
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, Server
from trio_mcp.session import KeyRing, Limits, MemoryBudget, ServiceOptions
from trio_mcp.session.tasks.record import TAKEN_BACK_OWNER
from trio_mcp.stores import Put, StoreError, StoreFull, StoreTimeout
from trio_mcp.types import RequestId

BUSY = -32000


class Place:
    """A server with one tool and a store, and what remains of its tasks."""

    def __init__(self, **options: Any) -> None:
        self.runs = 0
        self.disk = Disk()
        self.store = CrashingStore(self.disk)
        self.keys = KeyRing.random()
        options = {"keys": self.keys, "store": self.store, **options}
        self.server = Server("tester", version="1", options=ServiceOptions(**options))
        self.server.tool(task=True)(self.wait)

    async def wait(self, ctx: Context, text: str = "") -> str:
        self.runs += 1
        return (await ctx.elicit("Sure?", bool)).action

    @asynccontextmanager
    async def task(self, era: type[LegacyTask]) -> AsyncIterator[LegacyTask]:
        async with talk_to(self.server, principal="alice") as talk:
            task = era(talk)
            await task.open()
            yield task

    @property
    def stored(self) -> int:
        """Records of tasks, without those that say for a minute that a task was taken back."""
        taken_back = stored_names(TAKEN_BACK_OWNER, self.keys)
        records = self.disk.records.items()
        return sum(kind == "task" and record.owner not in taken_back for (kind, _), record in records)


def after_creation(store: CrashingStore, then: Callable[[], Awaitable[None]]) -> None:
    """Let every write that creates something be made, and go on with this."""
    write = store.write

    async def create(changes: Sequence[Change]) -> None:
        await write(changes)
        if any(isinstance(change, Put) and not change.record.version for change in changes):
            await then()

    store.write = create  # type: ignore[method-assign]


async def too_late() -> None:
    raise StoreTimeout("the store at /home/alice/state.db did not keep something in 5 seconds")


async def test_a_create_whose_write_was_made_after_its_time_is_taken_back(task_era: type[LegacyTask]) -> None:
    place = Place()
    after_creation(place.store, too_late)
    async with place.task(task_era) as task:
        error = (await task.reply(task.create("wait")))["error"]
        assert error["code"] == BUSY
        # Where the store is, is no business of a client.
        assert "/home" not in error["message"]
        assert (place.stored, place.runs, len(task.talk.service.tasks)) == (0, 0, 0)


@pytest.mark.parametrize("failure", [StoreFull, StoreTimeout, StoreError])
async def test_the_caller_gets_no_detail_of_a_failing_store_and_the_log_names_it(
    failure: type[StoreError], caplog: pytest.LogCaptureFixture
) -> None:
    place = Place()

    def fail(_changes: Sequence[Change]) -> None:
        raise failure("the store state.db")

    place.store.on_write = fail
    async with place.task(LegacyTask) as task:
        error = (await task.reply(task.create("wait")))["error"]
    assert error["code"] == BUSY
    assert "state.db" not in error["message"]
    assert "state.db" in caplog.text


@pytest.mark.parametrize("goes", [Talk.cancel, lambda talk, sent: talk.session.disconnect(talk.listeners[sent])])
async def test_a_create_that_is_withdrawn_while_it_is_stored_is_taken_back(
    task_era: type[LegacyTask], goes: Callable[[Talk, RequestId], object]
) -> None:
    place = Place()
    after_creation(place.store, trio.sleep_forever)
    async with place.task(task_era) as task:
        creating = task.create("wait")
        await wait_all_tasks_blocked()
        assert place.stored == 1
        goes(task.talk, creating)
        await wait_all_tasks_blocked()
        assert (place.stored, place.runs, len(task.talk.service.tasks)) == (0, 0, 0)


async def test_a_create_that_the_limit_of_calls_refuses_is_taken_back(task_era: type[LegacyTask]) -> None:
    place = Place(actors=Limits(actors=1))
    async with place.task(task_era) as task:
        await task.start("wait")
        await wait_all_tasks_blocked()
        assert (await task.reply(task.create("wait")))["error"]["code"] == BUSY
        assert (place.stored, place.runs, len(task.talk.service.tasks)) == (1, 1, 1)


async def test_tasks_draw_from_the_memory_budget_and_without_room_are_taken_back(task_era: type[LegacyTask]) -> None:
    memory = MemoryBudget(2_000_000)
    place = Place(memory=memory)
    async with place.task(task_era) as task:
        started = 0
        before = memory.drawn
        while "error" not in (reply := await task.reply(task.create("wait", {"text": "x" * 50_000}))):
            started += 1
            await wait_all_tasks_blocked()
            assert started < 100
        assert reply["error"]["code"] == BUSY
        assert "memory budget" in reply["error"]["message"]
        assert memory.drawn - before >= started * 50_000
        # Over half of it, no caller may have more than a quarter, over however many connections.
        assert memory.drawn <= memory.half
        assert (place.stored, place.runs, len(task.talk.service.tasks)) == (started, started, started)
