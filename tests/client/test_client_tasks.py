"""The client's side of tasks, against this project's server in both eras: L-TSK-2, L-TSK-5, L-TSK-6, M-TSK-1, M-TSK-4 to 6."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from connected import connected
from naming import naming
from pydantic import BaseModel
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Client, Context, Server, accept
from trio_mcp.errors import (
    CapabilityError,
    LimitExceeded,
    PeerError,
    RemoteProtocolError,
    RequestTimeout,
    TaskCancelled,
    ToolFailed,
)
from trio_mcp.testing import MockClient
from trio_mcp.types import Task


class Report(BaseModel):
    year: int
    pages: int


class Bench:
    """A server with tools that are tasks, and what became of them."""

    def __init__(self) -> None:
        self.server = Server("bench", version="1")
        self.begun = trio.Event()
        self.ended = trio.Event()
        self.release = trio.Event()
        server = self.server

        @server.tool(task=True)
        async def report(year: int, ctx: Context) -> Report:
            await ctx.status("reading")
            await ctx.progress(1, 2)
            answer = await ctx.elicit("how many pages?", int)
            await ctx.status("writing")
            return Report(year=year, pages=answer.content if answer.action == "accept" else 0)

        @server.tool(task="required")
        async def only_as_task(ctx: Context) -> str:
            await ctx.progress(1)
            return "done"

        @server.tool
        async def plain() -> str:
            return "plain"

        @server.tool(task=True)
        async def endless() -> str:
            self.begun.set()
            try:
                await self.release.wait()
            finally:
                self.ended.set()
            return "released"

        @server.tool(task=True)
        async def failing() -> str:
            raise PermissionError("not you")

        @server.tool(task=True)
        async def curious(times: int, ctx: Context) -> int:
            return sum([(await ctx.elicit(f"number {number}?", int)).content for number in range(times)])

    @asynccontextmanager
    async def client(self, mode: str, **options: Any) -> AsyncIterator[Client]:
        options.setdefault("on_elicit", lambda _params: accept(value=7))
        async with connected(self.server, mode=mode, **options, bound=500) as client:
            yield client


def as_task(mode: str) -> Any:
    """What makes a call of a tool that may be a task run as one."""
    return {} if mode == "modern" else {"task": True}


@pytest.fixture
def bench() -> Bench:
    return Bench()


# calls


async def test_a_call_follows_its_task_and_answers_what_it_asks(bench: Bench, mode: str) -> None:
    async with bench.client(mode) as client:
        report = await client.call_tool("report", {"year": 2026}, returns=Report, **as_task(mode))
    assert report == Report(year=2026, pages=7)


async def test_a_tool_that_must_be_a_task_needs_no_option(bench: Bench, mode: str) -> None:
    async with bench.client(mode) as client:
        assert (await client.call_tool("only_as_task")).text == "done"


async def test_a_tool_that_may_be_a_task_is_called_without_one_in_the_legacy_era(bench: Bench) -> None:
    async with bench.client("legacy") as client:
        assert (await client.call_tool("report", {"year": 1})).data == {"year": 1, "pages": 7}
        assert [task async for task in client.tasks()] == []


async def test_progress_of_a_task_arrives_under_the_token_of_its_call(bench: Bench) -> None:
    reports: list[float] = []
    async with bench.client("legacy") as client:
        await client.call_tool(
            "report", {"year": 1}, task=True, on_progress=lambda report: reports.append(report.progress)
        )
    assert reports == [1]


async def test_a_cancel_of_the_call_cancels_the_task(bench: Bench, mode: str) -> None:
    async with bench.client(mode) as client:
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await client.call_tool("endless", **as_task(mode))

            nursery.start_soon(call)
            await bench.begun.wait()
            # The answer with the task has arrived by then.
            await trio.sleep(1)
            nursery.cancel_scope.cancel()
        # Before the call has ended the server has agreed.
        await bench.ended.wait()


async def test_a_task_that_does_not_change_ends_with_the_idle_timeout(bench: Bench, mode: str) -> None:
    async with bench.client(mode) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("endless", idle_timeout=90, **as_task(mode))
        await bench.ended.wait()


async def test_an_error_of_the_tool_is_a_result(bench: Bench, mode: str) -> None:
    async with bench.client(mode) as client:
        assert (await client.call_tool("failing", **as_task(mode))).is_error
        with pytest.raises(ToolFailed):
            await client.call_tool("failing", raise_on_error=True, **as_task(mode))


async def test_a_task_may_ask_as_often_as_a_call(bench: Bench) -> None:
    async with bench.client("modern") as client:
        assert await client.call_tool("curious", {"times": 10}, returns=int) == 70
        with pytest.raises(LimitExceeded, match="max_rounds"):
            await client.call_tool("curious", {"times": 11})
        assert await client.call_tool("curious", {"times": 11}, max_rounds=11, returns=int) == 77


async def test_an_exception_of_a_handler_leaves_the_call_and_cancels_the_task(bench: Bench) -> None:
    def on_elicit(_params: object) -> Any:
        raise ZeroDivisionError

    async with bench.client("modern", on_elicit=on_elicit) as client:
        with pytest.raises(ZeroDivisionError):
            await client.call_tool("report", {"year": 1})


# handles


async def test_a_started_tool_goes_on_without_a_caller(bench: Bench, mode: str) -> None:
    async with bench.client(mode) as client:
        task = await client.start_tool("endless")
        assert (await task.status()).status == "working"
        with pytest.raises(RequestTimeout):
            await task.result(timeout=3)
        bench.release.set()
        assert (await task.result()).text == "released"
        assert (await task.status()).status == "completed"


async def test_a_task_is_picked_up_by_its_id(bench: Bench, mode: str) -> None:
    async with bench.client(mode) as client:
        started = await client.start_tool("report", {"year": 3})
        again = client.task(started.id, returns=Report)
        assert await again.result() == Report(year=3, pages=7)
        assert (await client.task(started.id).result()).data == {"year": 3, "pages": 7}


async def test_a_handle_shows_each_change_to_the_end(bench: Bench, mode: str) -> None:
    async with bench.client(mode) as client:
        task = await client.start_tool("report", {"year": 3})
        seen: list[Task] = [change async for change in task]
        assert seen[-1].status == "completed"
        assert "input_required" in [change.status for change in seen]
        assert "writing" in [change.status_message for change in seen]
        # An iteration that begins later sees how the task is.
        assert [change.status async for change in task] == ["completed"]
        assert (await task.result()).data["pages"] == 7


async def test_changes_are_reported_while_the_result_is_awaited(bench: Bench, mode: str) -> None:
    seen: list[Task] = []
    async with bench.client(mode) as client:
        task = await client.start_tool("report", {"year": 3})
        await task.result(on_change=seen.append)
    assert "writing" in [change.status_message for change in seen]


async def test_several_may_wait_for_one_task_and_the_user_is_asked_once(bench: Bench, mode: str) -> None:
    asked: list[object] = []

    async def on_elicit(params: object) -> Any:
        asked.append(params)
        await trio.sleep(30)
        return accept(value=1)

    async with bench.client(mode, on_elicit=on_elicit) as client:
        task = await client.start_tool("report", {"year": 3})
        results: list[object] = []

        async def wait() -> None:
            results.append((await task.result()).data)

        async def watch() -> None:
            async for _ in task:
                pass

        async with trio.open_nursery() as nursery:
            for waiting in (wait, wait, watch):
                nursery.start_soon(waiting)
    assert results == [{"year": 3, "pages": 1}] * 2
    assert len(asked) == 1


async def test_a_cancelled_wait_leaves_the_task_and_its_question(bench: Bench, mode: str) -> None:
    asked: list[trio.CancelScope] = []

    async def on_elicit(_params: object) -> Any:
        if not asked:
            asked.append(trio.CancelScope())
            waiting.cancel()
            await trio.sleep_forever()
        return accept(value=2)

    async with bench.client(mode, on_elicit=on_elicit) as client:
        task = await client.start_tool("report", {"year": 3})
        with trio.CancelScope() as waiting:
            await task.result()
        assert waiting.cancelled_caught
        assert (await task.result()).data == {"year": 3, "pages": 2}


async def test_a_cancelled_task_has_no_result(bench: Bench, mode: str) -> None:
    async with bench.client(mode) as client:
        task = await client.start_tool("endless")
        await bench.begun.wait()
        await task.cancel()
        await bench.ended.wait()
        with pytest.raises(TaskCancelled) as raised:
            await task.result()
        assert raised.value.task_id == task.id
        # A task that is over stays as it is.
        await task.cancel()
        assert (await task.status()).status == "cancelled"


async def test_an_unknown_task_is_an_error(bench: Bench, mode: str) -> None:
    async with bench.client(mode) as client:
        for method in ("status", "result", "cancel"):
            with pytest.raises(PeerError) as raised:
                await getattr(client.task("nothing"), method)()
            assert raised.value.code == -32602
        with pytest.raises(PeerError):
            async for _ in client.task("nothing"):
                pass


async def test_a_modern_server_may_answer_a_start_at_once(bench: Bench) -> None:
    async with bench.client("modern") as client:
        task = await client.start_tool("plain")
        assert task.id == ""
        assert [change.status async for change in task] == ["completed"]
        await task.cancel()
        assert (await task.result()).text == "plain"


async def test_the_time_for_which_a_task_is_kept_can_be_asked_for(bench: Bench) -> None:
    async with bench.client("legacy") as client:
        task = await client.start_tool("endless", ttl=90)
        assert (await task.status()).ttl_ms == 90_000


async def test_a_result_is_validated_against_the_schema_of_its_tool(bench: Bench) -> None:
    async with bench.client("modern") as client:
        task = await client.start_tool("report", {"year": 3}, returns=list[int])
        with pytest.raises(RemoteProtocolError):
            await task.result()


# what there is not


async def test_only_the_legacy_era_lists_tasks(bench: Bench) -> None:
    async with bench.client("legacy") as client:
        task = await client.start_tool("endless")
        assert [each.task_id async for each in client.tasks()] == [task.id]
    async with bench.client("modern") as client:
        with pytest.raises(CapabilityError, match=naming("client.task")):
            client.tasks()


@pytest.mark.parametrize("mode", ["2025-06-18", "legacy", "modern"])
async def test_a_server_without_tasks_is_named_with_the_cure(mode: str) -> None:
    server = Server("plain", version="1")

    @server.tool
    async def plain() -> str:
        return "plain"

    async with Client.connect(server, mode=mode) as client:
        with pytest.raises(CapabilityError, match=naming("call_tool", "plain")):
            await client.start_tool("plain")
        with pytest.raises(CapabilityError, match="call_tool"):
            await client.call_tool("plain", task=True)
        assert (await client.call_tool("plain")).text == "plain"


async def test_a_tool_that_is_no_task_is_named_with_the_cure(bench: Bench) -> None:
    async with bench.client("legacy") as client:
        with pytest.raises(CapabilityError, match=naming("plain", "call_tool")):
            await client.start_tool("plain")


async def test_wrong_arguments_are_an_error_before_anything_is_sent(bench: Bench) -> None:
    async with bench.client("modern") as client:
        for ttl in (0, -1, float("inf")):
            with pytest.raises(ValueError, match="ttl"):
                await client.start_tool("endless", ttl=ttl)
        with pytest.raises(TypeError, match="start_tool"):
            await client.start_tool("endless", colour=1)  # type: ignore[call-overload]  # pyright: ignore
        for wrong in ("", "x" * 2000):
            with pytest.raises(ValueError, match="task_id"):
                client.task(wrong)
        with pytest.raises(TypeError, match="tool"):
            client.task("x", tool=3)  # type: ignore[call-overload]  # pyright: ignore
        with pytest.raises(TypeError):
            await client.task("x").result(on_change=3)  # type: ignore[arg-type]  # pyright: ignore


# the mock client


async def test_the_mock_client_runs_tools_that_are_tasks(bench: Bench, mode: str) -> None:
    mock = MockClient(elicits=[5], era=mode)
    assert (await mock.call((bench.server, "report"), year=9)).data == {"year": 9, "pages": 5}
    assert (await MockClient(era=mode).call((bench.server, "only_as_task"))).text == "done"


@pytest.mark.parametrize("steps", range(24))
async def test_a_cancel_of_the_call_before_its_task_is_known_cancels_the_task(mode: str, steps: int) -> None:
    """The cancel falls into each step of the way of the answer: before the task exists, while its id travels, and after."""
    server, running = Server("bench", version="1"), set[object]()

    @server.tool(task=True)
    async def endless() -> None:
        running.add(me := object())
        try:
            await trio.sleep_forever()
        finally:
            running.discard(me)

    async with connected(server, mode=mode, bound=500) as client:
        await client.list_tools()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(client.call_tool, "endless", **as_task(mode)))
            for _ in range(steps):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        assert not running


# forgotten awaits


async def test_a_forgotten_await_is_an_error_that_names_the_method(bench: Bench) -> None:
    async with bench.client("modern") as client:
        with pytest.raises(TypeError, match=naming("await client.start_tool")):
            client.start_tool("endless").id  # type: ignore[attr-defined]  # noqa: B018
        task = await client.start_tool("endless")
        for name, forgotten in (("status", task.status), ("result", task.result), ("cancel", task.cancel)):
            with pytest.raises(TypeError, match=naming(f"await task.{name}")):
                assert forgotten()
        await task.cancel()
