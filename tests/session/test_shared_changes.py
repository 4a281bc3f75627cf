"""Changes in one process of those that share a store: the subscribers of the others are notified, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from noticing_store import NoticingDisk, NoticingStore
from peer import EVERYTHING
from talk import Talk, talk_to
from task_process import KEYS, Work
from task_talk import DECLARES, ModernTask
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Server, ServiceOptions
from trio_mcp.session.changes import MOST_UNSENT, TOPIC

LIMIT = 5.0
PAGE = "pages://home"


def page() -> str:
    return "home"


class Process:
    """One process of a server."""

    def __init__(self, store: Any, work: Work) -> None:
        self.store = store
        self.server = Server("shop", version="1", options=ServiceOptions(keys=KEYS, store=store))
        self.server.tool(task=True, resume="replay")(work.order)
        self.server.resource(PAGE)(page)
        self.talk: Talk = None  # type: ignore[assignment]

    async def listen(self, **notifications: Any) -> None:
        self.talk.ask("subscriptions/listen", DECLARES, notifications=notifications)
        await wait_all_tasks_blocked()
        assert "notifications/subscriptions/acknowledged" in self.news()

    def news(self) -> list[str]:
        """Return the methods of the notifications that have come."""
        return [each["method"] for each in self.talk.waiting() if "method" in each]


@asynccontextmanager
async def pair(disk: NoticingDisk, work: Work | None = None) -> AsyncIterator[list[Process]]:
    """Two processes, which know of each other."""
    async with AsyncExitStack() as stack:
        processes = [Process(NoticingStore(disk), work or Work()) for _ in range(2)]
        for each in processes:
            each.talk = await stack.enter_async_context(talk_to(each.server, principal="alice"))
        await wait_all_tasks_blocked()
        yield processes


def buy() -> str:
    return "bought"


@pytest.mark.parametrize("is_legacy", [False, True], ids=["modern", "legacy"])
@pytest.mark.parametrize("where", [0, 1], ids=["of its own process", "of the other process"])
async def test_a_change_of_a_list_reaches_each_subscriber_once(where: int, is_legacy: bool) -> None:
    async with pair(NoticingDisk()) as processes:
        subscriber = processes[where]
        if is_legacy:
            await subscriber.talk.initialize(capabilities=EVERYTHING)
            await wait_all_tasks_blocked()
            subscriber.news()
        else:
            await subscriber.listen(toolsListChanged=True)
        processes[0].server.tool(buy)
        await wait_all_tasks_blocked()
        assert subscriber.news() == ["notifications/tools/list_changed"]


async def test_an_update_of_a_resource_reaches_the_subscribers_of_the_other_process_alone() -> None:
    async with pair(NoticingDisk()) as (first, second):
        await second.listen(resourceSubscriptions=[PAGE])
        first.server.resource_updated("pages://other")
        await wait_all_tasks_blocked()
        assert second.news() == []
        first.server.resource_updated(PAGE)
        await wait_all_tasks_blocked()
        assert second.news() == ["notifications/resources/updated"]


async def test_the_news_of_a_task_reach_the_subscribers_of_the_other_process() -> None:
    async with pair(NoticingDisk()) as (first, second):
        task = ModernTask(first.talk)
        await task.start("order")
        await wait_all_tasks_blocked()
        await second.listen(taskIds=[task.id])
        await task.answer(True)
        await task.answer(True)
        statuses = [each["params"]["status"] for each in second.talk.waiting() if "method" in each]
        assert statuses[-1] == "completed"


async def test_an_answer_that_comes_to_another_process_is_taken_at_once() -> None:
    """Without a clock that jumps: no look is waited for."""
    work = Work()
    async with pair(NoticingDisk(), work) as (first, second):
        task = ModernTask(first.talk)
        await task.start("order")
        await wait_all_tasks_blocked()
        elsewhere = ModernTask(second.talk)
        elsewhere.id = task.id
        (key,) = (await elsewhere.get())["inputRequests"]
        answers = {key: {"action": "accept", "content": {"value": True}}}
        elsewhere.request("tasks/update", taskId=task.id, inputResponses=answers)
        await wait_all_tasks_blocked()
        (next_key,) = (await task.get())["inputRequests"]
        assert next_key != key


@pytest.mark.parametrize("why", ["lost", "too long", "too many"])
async def test_where_notices_may_be_lost_everything_counts_as_changed(why: str) -> None:
    disk = NoticingDisk()
    async with pair(disk) as (first, second):
        await second.listen(toolsListChanged=True, resourceSubscriptions=[PAGE])
        disk.is_deaf = why == "lost"
        for number in range(MOST_UNSENT + 1 if why == "too many" else 1):
            first.server.resource_updated(f"pages://{number}{'x' * 1900 if why == 'too long' else ''}")
        await wait_all_tasks_blocked()
        assert sorted(second.news()) == ["notifications/resources/updated", "notifications/tools/list_changed"]


@pytest.mark.parametrize(
    "content",
    [b"5", b"null", b"{}", b"[]", b'["a", ["tools"], null]', b'["a", "tools", 5]', b"[" * 4000, b"\xff"],
    ids=[
        "a number",
        "null",
        "an object",
        "no member",
        "a kind that is a list",
        "a URI that is none",
        "deep",
        "no text",
    ],
)
async def test_a_notice_of_another_version_counts_as_a_change_of_everything(content: bytes) -> None:
    disk = NoticingDisk()
    async with pair(disk) as (_, second):
        await second.listen(toolsListChanged=True)
        disk.notify(TOPIC, content, KEYS)
        await wait_all_tasks_blocked()
        assert second.news() == ["notifications/tools/list_changed"]


async def test_a_process_that_cannot_listen_tries_again_and_counts_everything_as_changed() -> None:
    disk = NoticingDisk()
    first, second = (Process(NoticingStore(disk), Work()) for _ in range(2))
    second.store.may_listen = False
    async with talk_to(first.server) as first.talk, talk_to(second.server) as second.talk:
        await second.listen(toolsListChanged=True)
        first.server.tool(buy)
        await trio.sleep(1)
        assert second.news() == []
        second.store.may_listen = True
        await trio.sleep(60)
        assert second.news() == ["notifications/tools/list_changed"]


async def test_a_process_that_is_alone_announces_no_news_of_tasks() -> None:
    disk = NoticingDisk()
    only = Process(NoticingStore(disk), Work())
    async with talk_to(only.server) as only.talk:
        await trio.sleep(10)
        disk.announced.clear()
        task = ModernTask(only.talk)
        await task.start("order")
        await task.answer(True)
        assert disk.announced == []
        # One that starts is known at once.
        other = Process(NoticingStore(disk), Work())
        async with talk_to(other.server) as other.talk:
            await wait_all_tasks_blocked()
            disk.announced.clear()
            await task.answer(True)
            assert disk.announced != []


@pytest.mark.trio  # in real time
async def test_processes_on_one_sqlite_file_share_their_changes(tmp_path: Path) -> None:
    first, second = (Process(str(tmp_path / "state.db"), Work()) for _ in range(2))
    with trio.fail_after(10 * LIMIT):
        async with talk_to(first.server) as first.talk, talk_to(second.server) as second.talk:
            await second.listen(toolsListChanged=True)
            first.server.tool(buy)
            assert (await second.talk.receive())["method"] == "notifications/tools/list_changed"
