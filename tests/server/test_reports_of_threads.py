"""A plain function runs in a thread, where the methods of its context wait and return their values."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio
from connected import connected
from naming import naming, unnamed
from talk import talk_to
from task_talk import DECLARES, ModernTask
from test_unawaited_answers import METHODS

from trio_mcp import Client, Context, Server, SyncContext, ToolError, accept, decline
from trio_mcp.errors import ElicitationDeclined, RequestTimeout
from trio_mcp.testing import MockClient, tool_use

BOUND = 10
BRANCHING = ("ctx.branch", "ctx.branch_all", "ctx.branch_race")
SCRIPTS: dict[str, dict[str, Any]] = {
    "ctx.elicit": {"elicits": [True]},
    "ctx.elicit.strict": {"elicits": [True]},
    "ctx.elicit.with_retry": {"elicits": [True]},
    "ctx.elicit_url": {"urls": [accept()]},
    "ctx.sample": {"samples": ["hello"]},
    "ctx.sample_schema": {"samples": [5]},
    "ctx.sample_tools": {"samples": [tool_use("look", at="it")]},
    "ctx.run_tool_loop": {"samples": [tool_use("look", at="it"), "a tree"]},
    "ctx.roots": {"roots": [Path("/a")]},
}


def server_with(*tools: Callable[..., Any], **options: Any) -> Server:
    server = Server("tester")
    for tool in tools:
        server.add_tool(tool, **options)
    server.add_resource("test://one", lambda: "one")
    server.add_prompt(lambda: "hello", name="greet")
    return server


@pytest.mark.parametrize("name", [name for name in METHODS if name not in (*BRANCHING, "ctx.become_task")])
async def test_a_method_waits_in_a_thread_and_returns_its_value(name: str, mode: str) -> None:
    values: list[object] = []

    def work(ctx: Context) -> str:
        if name == "ctx.elicit_url":
            values.append(ctx.elicit_url("Connect", "https://example.com", wait=False))
        else:
            values.append(METHODS[name](ctx))
        return "done"

    with trio.fail_after(BOUND):
        result = await MockClient(era=mode, **SCRIPTS.get(name, {})).call((server_with(work), "work"))
    assert (result.is_error, result.text, len(values)) == (False, "done", 1)
    assert not hasattr(values[0], "send"), "it is a value, and nothing to await"


async def test_a_plain_function_asks_and_reports_as_an_async_one_does(mode: str) -> None:
    def book(city: str, ctx: SyncContext) -> str:
        ctx.progress(1, total=2, message="asking")
        seat = ctx.elicit(f"Which seat to {city}?", ["window", "aisle"])
        if seat.action != "accept":
            raise ToolError("no seat")
        if not ctx.elicit.strict("Sure?", bool):
            return "no"
        ctx.info({"seat": seat.content}, logger="seats")
        with pytest.raises(ElicitationDeclined):
            ctx.elicit.strict("Really?")
        return f"{seat.content} {ctx.sample('One word.').text} {ctx.deadline < 1e9}"

    with trio.fail_after(BOUND):
        client = MockClient(era=mode, elicits=["aisle", True, decline()], samples=["fine"])
        result = await client.call((server_with(book, timeout=60), "book"), city="Oslo")
    assert result.text == "aisle fine True"
    assert [(report.progress, report.total, report.message) for report in client.progress] == [(1, 2, "asking")]
    assert [(entry.data, entry.logger) for entry in client.logs] == [({"seat": "aisle"}, "seats")]


async def test_trios_way_to_the_loop_works_too(mode: str) -> None:
    def work(ctx: Context) -> str:
        trio.from_thread.run(ctx.info, "working")
        return "done"

    with trio.fail_after(BOUND):
        client = MockClient(era=mode)
        assert (await client.call(work)).text == "done"
    assert [entry.data for entry in client.logs] == ["working"]


async def test_wrong_arguments_are_the_same_error_as_in_an_async_function() -> None:
    def work(ctx: Context) -> None:
        with pytest.raises(TypeError, match=naming("ctx.progress", "total")):
            ctx.progress(1, totl=2)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=naming("message")):
            ctx.elicit(3, bool)  # type: ignore[call-overload,unused-coroutine]

    assert not (await MockClient().call(work)).is_error


@pytest.mark.parametrize("name", [*BRANCHING, "ctx.branches"])
async def test_a_branch_of_a_thread_is_an_error_that_says_why(name: str) -> None:
    def work(ctx: Context) -> None:
        METHODS.get(name, lambda ctx: ctx.branches())(ctx)

    result = await MockClient().call(work)
    assert result.is_error
    assert unnamed(result.text, "branches", "async def") == []


async def test_a_plain_step_runs_in_a_thread_and_once() -> None:
    ran: list[bool] = []

    def find(city: str) -> str:
        ran.append(trio.lowlevel.in_trio_run())
        return f"found {city}"

    async def wait() -> int:
        return 5

    def work(ctx: SyncContext) -> str:
        found, number = ctx.step("find", find, "Oslo"), ctx.step("wait", wait)
        ctx.elicit("Sure?")
        return f"{found} {number}"

    with trio.fail_after(BOUND):
        result = await MockClient(elicits=[{}]).call(work)
    assert (result.text, ran) == ("found Oslo 5", [False])


async def test_a_question_in_a_thread_has_its_timeout() -> None:
    def work(ctx: SyncContext) -> str:
        try:
            ctx.elicit("Sure?", bool, timeout=0.01)
        except RequestTimeout:
            return "timed out"
        return "answered"

    async def never(_params: object) -> Any:
        await trio.sleep_forever()

    async with connected(server_with(work), on_elicit=never, mode="legacy") as client:
        assert (await client.call_tool("work")).text == "timed out"


async def test_a_cancelled_call_raises_in_the_thread_that_waits(mode: str) -> None:
    asked, seen, left = trio.Event(), list[BaseException](), threading.Event()

    def work(ctx: SyncContext) -> None:
        try:
            ctx.elicit("Sure?", bool)
        except BaseException as error:
            seen.append(error)
            left.set()
            raise

    async def never(_params: object) -> Any:
        asked.set()
        await trio.sleep_forever()

    with trio.fail_after(BOUND):
        async with (
            Client.connect(server_with(work), on_elicit=never, mode=mode) as client,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(client.call_tool, "work")
            await asked.wait()
            nursery.cancel_scope.cancel()
        await trio.to_thread.run_sync(left.wait)
    assert [type(error) for error in seen] == [trio.Cancelled]


@pytest.mark.parametrize("method", ["info", "elicit"])
async def test_a_cancelled_call_raises_in_the_thread_at_the_next_method(method: str) -> None:
    cancelled, seen, left = threading.Event(), list[BaseException](), threading.Event()
    working = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def work(ctx: SyncContext) -> None:
        token.run_sync_soon(working.set)
        cancelled.wait(BOUND)
        try:
            getattr(ctx, method)("hello")
        except BaseException as error:
            seen.append(error)
            left.set()
            raise

    server = server_with(work)
    async with connected(server) as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "work")
            await working.wait()
            nursery.cancel_scope.cancel()
        while (threads := server.services[0].statistics().threads) is None or threads.abandoned == 0:
            await trio.lowlevel.checkpoint()
        cancelled.set()
        await trio.to_thread.run_sync(left.wait)
    assert [type(error) for error in seen] == [trio.Cancelled]


async def test_a_thread_that_trio_did_not_start_gets_an_error_with_the_cure() -> None:
    def work(ctx: SyncContext) -> str:
        with ThreadPoolExecutor(1) as pool:
            error = pool.submit(ctx.info, "hello").exception()
        assert isinstance(error, RuntimeError)
        return str(error)

    assert unnamed((await MockClient().call(work)).text, "ctx.info", "thread", "trio.to_thread.run_sync") == []


async def test_a_thread_of_an_async_function_may_use_its_context() -> None:
    async def work(ctx: Context) -> str:
        def ask() -> object:
            return ctx.elicit.strict("Sure?", bool)

        return str(await trio.to_thread.run_sync(ask))

    assert (await MockClient(elicits=[True]).call(work)).text == "True"


async def test_a_tool_in_a_thread_becomes_a_task_and_its_first_run_ends_there() -> None:
    began, went_on = list[str](), list[str]()

    def work(ctx: SyncContext) -> str:
        began.append("run")
        name = ctx.elicit.strict("Your name?", str)
        try:
            ctx.become_task()
        except Exception as error:  # noqa: BLE001  an author may write so
            went_on.append(repr(error))
        went_on.append(name)
        return f"Hello, {name}!"

    with trio.fail_after(BOUND):
        async with talk_to(server_with(work, task="later", resume="replay")) as talk:
            asked = await talk.round(talk.leg("work", capabilities=DECLARES))
            task = ModernTask(talk)
            task.id = task.created(await task.reply(asked.retry("Ann", capabilities=DECLARES)))["taskId"]
            while await task.status() == "working":
                await trio.lowlevel.checkpoint()
            assert (await task.result())["content"][0]["text"] == "Hello, Ann!"
    assert (began, went_on) == (["run", "run"], ["Ann"])


def test_an_async_function_cannot_take_the_context_of_a_plain_one() -> None:
    async def work(ctx: SyncContext) -> None:
        """Ask."""

    with pytest.raises(TypeError, match=naming("work", "ctx: Context")):
        Server("tester").add_tool(work)
