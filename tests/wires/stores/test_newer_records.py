"""What a newer version of the package has left in a store, at each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from talk import talk_to
from task_process import KEYS, Work, key_of
from task_talk import LegacyTask

from trio_mcp import Server
from trio_mcp.session import MemoryBudget, ServiceOptions
from trio_mcp.stores import Append, Put, Record, Store, open_store

BOUND = 60
NAME = "tester"
NEWER = b'{"version":2,"secret":1}'
KINDS = ("claim", "session", "call", "journal", "key", "became", "task-mail", "kind of a newer version")


@asynccontextmanager
async def process(url: str) -> AsyncIterator[LegacyTask]:
    server, work = Server(NAME, version="1", options=ServiceOptions(keys=KEYS, store=url)), Work()
    server.tool(task=True, resume="replay")(work.order)
    async with talk_to(server, principal="alice") as talk:
        task = LegacyTask(talk)
        await task.open()
        yield task


async def become_newer(store: Store, task_id: str) -> None:
    """Write over the record of a task, and write others, as a newer version may."""
    record = await store.read("task", key_of(task_id))
    assert record is not None
    await store.write(
        [
            Put(record._replace(value=NEWER)),
            *(Put(Record(kind, "newer", NEWER)) for kind in KINDS),
            *(Append(kind, "newer", 1, [NEWER]) for kind in KINDS),
        ]
    )


async def left_in(store: Store) -> list[object]:
    """Return what a newer version has left."""
    records = [each for kind in ("task", *KINDS) for each in await store.list(kind) if each.value == NEWER]
    return [*records, *[await store.entries(kind, "newer", 0, 10) for kind in KINDS]]


async def test_what_a_newer_version_has_written_is_not_served_and_stays_as_it_is(
    store: str, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.fail_after(BOUND):
        async with process(store) as task:
            newer, known = [(await task.start("order"))["taskId"] for _ in range(2)]
            while await task.status() != "input_required":  # noqa: ASYNC110  no event of ours
                await trio.sleep(0.05)
        async with open_store(store, KEYS, MemoryBudget(), NAME) as opened:
            await become_newer(opened, newer)
            before = await left_in(opened)
            async with process(store) as task:
                task.id = known
                # Taken over in a pass that looks at the newer one, too.
                while await task.status() != "input_required":  # noqa: ASYNC110  no event of ours
                    await trio.sleep(0.05)
                listed = (await task.reply(task.request("tasks/list")))["result"]["tasks"]
                assert [each["taskId"] for each in listed] == [known]
                task.id = newer
                assert await task.status() == "failed"
                cancelled = await task.reply(task.about("tasks/cancel"))
                assert "error" in cancelled
            assert await left_in(opened) == before
    assert len(before) == 1 + 2 * len(KINDS)
    assert "another version" in caplog.text
    assert "secret" not in caplog.text
