"""Who reads the exceptions of a server's functions: their caller, a test, or the log alone."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from connected import connected
from ends import memory_ends

from trio_mcp import Client, Context, PeerError, Server, ServiceOptions, ToolError, accept
from trio_mcp.errors import TaskCancelled
from trio_mcp.session import serve_channel
from trio_mcp.types import CallToolResult


class Broken(Exception):
    """What the functions of the server raise."""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError


RAISED: dict[str, BaseException] = {
    "refuse": ToolError("not today"),
    "leave": SystemExit(3),
    "silent": Broken(),
    "unspeakable": Unspeakable(),
    "endless": Broken("x" * 100_000),
}
"""What tools of the server raise; the others raise `Broken` themselves, so that a traceback can be told from another."""


def raising(error: BaseException) -> Callable[[], Awaitable[None]]:
    async def raises() -> None:
        raise error.with_traceback(None)

    return raises


def offering(tell_errors: bool | None = None) -> Server:
    server = Server("broken", version="1", options=ServiceOptions(tell_errors=tell_errors))
    for name, error in RAISED.items():
        server.add_tool(raising(error), name=name)

    @server.tool
    async def boom() -> None:
        raise Broken("detail")

    @server.tool
    def boom_in_thread() -> None:
        raise Broken("detail")

    @server.tool
    async def boom_in_branches(ctx: Context) -> None:
        async def fail(_child: Context) -> None:
            raise Broken("detail")

        await ctx.branch_all(fail)

    @server.tool
    async def boom_after_question(ctx: Context) -> None:
        await ctx.elicit("Go on?", bool)
        raise Broken("detail")

    @server.resource("broken://now")
    async def now() -> str:
        raise Broken("detail")

    @server.prompt
    async def ask() -> str:
        raise Broken("detail")

    return server


client_of = partial(connected, on_elicit=lambda _: accept(value=True))


async def call(server: Server, mode: str, tool: str) -> CallToolResult:
    async with client_of(server, mode) as client:
        return await client.call_tool(tool)


# reported errors


@pytest.mark.parametrize("tool", ["boom", "boom_in_thread", "boom_after_question"])
async def test_a_client_in_the_process_receives_the_exception(
    mode: str, tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = await call(offering(), mode, tool)
    assert (result.is_error, result.text) == (True, "Broken: detail")
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.levelno == logging.ERROR


async def test_all_exceptions_of_a_group_are_reported(mode: str) -> None:
    assert (await call(offering(), mode, "boom_in_branches")).text == "Broken: detail"

    async def both() -> None:
        raise ExceptionGroup("two", [Broken("first"), ExceptionGroup("nested", [LookupError("second")])])

    server = offering()
    server.tool(both)
    assert (await call(server, mode, "both")).text == "Broken: first; LookupError: second"


TEXTS = {
    "silent": "Broken",
    "leave": "SystemExit: 3",
    "unspeakable": "LookupError",
    "refuse": "not today",
    "endless": "xx",
}


@pytest.mark.parametrize(("tool", "text"), TEXTS.items(), ids=TEXTS)
async def test_whatever_is_raised_has_a_text_which_is_bounded(mode: str, tool: str, text: str) -> None:
    told = (await call(offering(), mode, tool)).text
    assert text in told
    assert len(told) == 10_000 if tool == "endless" else len(told) < 100


REQUESTS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "resource": lambda client: client.read_resource("broken://now"),
    "prompt": lambda client: client.get_prompt("ask"),
}


@pytest.mark.parametrize("way", ["call_tool", "start_tool"])
@pytest.mark.parametrize("task", [True, "required"])
async def test_a_task_raises_the_exception_itself_where_its_result_is_awaited(mode: str, task: Any, way: str) -> None:
    server = offering()

    @server.tool(task=task)
    async def boom_later(ctx: Context) -> None:
        await ctx.elicit("Go on?", bool)
        raise Broken("detail")

    async with client_of(server, mode, raise_exceptions=True) as client:
        result = (
            client.call_tool("boom_later") if way == "call_tool" else (await client.start_tool("boom_later")).result()
        )
        with pytest.raises(Broken, match="detail") as caught:
            await result
        assert caught.traceback[-1].name == "boom_later"


async def test_what_a_cancelled_task_raises_is_not_its_outcome(mode: str) -> None:
    server = offering()

    @server.tool(task=True)
    async def boom_at_the_end() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise Broken("detail")

    async with client_of(server, mode, raise_exceptions=True) as client:
        task = await client.start_tool("boom_at_the_end")
        await trio.testing.wait_all_tasks_blocked()
        await task.cancel()
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(TaskCancelled):
            await task.result()


@pytest.mark.parametrize("raises", [False, True], ids=["told", "raised"])
@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
async def test_resources_and_prompts_tell_in_their_error_or_raise(
    mode: str, request_of: Callable[[Client], Awaitable[object]], raises: bool
) -> None:
    async with client_of(offering(), mode, raise_exceptions=raises) as client:
        with pytest.raises(Broken if raises else PeerError, match="detail") as caught:
            await request_of(client)
    if not raises:
        assert (caught.value.code, caught.value.message) == (-32603, "Broken: detail")


# masked


async def test_the_option_masks_errors_in_the_process_too(mode: str) -> None:
    result = await call(offering(tell_errors=False), mode, "boom")
    assert result.is_error
    assert "Broken" not in result.text
    async with client_of(offering(tell_errors=False), mode) as client:
        with pytest.raises(PeerError) as caught:
            await client.read_resource("broken://now")
        assert "Broken" not in caught.value.message


@pytest.mark.parametrize(("tell_errors", "is_shown"), [(None, False), (False, False), (True, True)])
async def test_other_channels_report_exceptions_only_with_the_option(
    mode: str, tell_errors: bool | None, is_shown: bool
) -> None:
    class Remote:
        """Serves over a channel that is not known to end in this process."""

        async def serve_channel(self, channel: Any) -> None:
            async with offering(tell_errors).open_service() as service:
                await serve_channel(service, channel)

    async with client_of(Remote(), mode) as client:  # type: ignore[arg-type]
        assert ("Broken" in (await client.call_tool("boom")).text) is is_shown


# raised


@pytest.mark.parametrize("tell_errors", [None, False])
@pytest.mark.parametrize("tool", ["boom", "boom_in_thread", "boom_in_branches", "boom_after_question"])
async def test_a_test_gets_the_exception_itself(mode: str, tool: str, tell_errors: bool | None) -> None:
    async with client_of(offering(tell_errors), mode, raise_exceptions=True) as client:
        with pytest.raises(Broken, match="detail") as caught:
            await client.call_tool(tool)
        # Its traceback leads to the line that raised it.
        assert caught.traceback[-1].name in (tool, "fail")
        assert (await client.call_tool("refuse")).text == "not today"


async def test_each_of_several_calls_raises_its_own_exception(mode: str) -> None:
    server, found = offering(), set[int]()

    @server.tool
    async def numbered(number: int) -> None:
        raise Broken(str(number))

    async def one(number: int) -> None:
        with pytest.raises(Broken, match=f"^{number}$"):
            await client.call_tool("numbered", {"number": number})
        found.add(number)

    async with client_of(server, mode, raise_exceptions=True) as client, trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(one, number)
    assert found == {*range(10)}


async def test_an_exit_is_contained(mode: str) -> None:
    async with client_of(offering(), mode, raise_exceptions=True) as client:
        assert (await client.call_tool("leave")).is_error


async def raised_by(client: Client) -> weakref.ref[Broken]:
    try:
        await client.call_tool("boom")
    except Broken as error:
        return weakref.ref(error)
    raise AssertionError("the call raised nothing")


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def test_a_raised_exception_is_freed_without_the_garbage_collector(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("trio_mcp").setLevel(logging.CRITICAL)  # records that are kept would hold it
    try:
        async with client_of(offering(), mode, raise_exceptions=True) as client:
            with no_collector():
                error = await raised_by(client)
                await trio.testing.wait_all_tasks_blocked()
                assert error() is None
    finally:
        logging.getLogger("trio_mcp").setLevel(logging.NOTSET)


@pytest.mark.parametrize("target", ["http://127.0.0.1:1/mcp", "ws://127.0.0.1:1/mcp", ["python", "server.py"]])
def test_only_a_server_object_can_raise(target: Any) -> None:
    with pytest.raises(TypeError, match="raise_exceptions"):
        Client.connect(target, raise_exceptions=True)


def test_a_pair_of_channels_raises_nothing_by_itself() -> None:
    assert [channel.raised for channel in memory_ends()] == [None, None]


# code for asyncio


async def sleeps() -> None:
    await asyncio.sleep(0.1)


async def yields() -> None:
    await asyncio.sleep(0)


def in_thread() -> None:
    asyncio.get_event_loop()


async def in_branch(ctx: Context) -> None:
    async def sleep(_child: Context) -> None:
        await asyncio.sleep(0.1)

    await ctx.branch_all(sleep)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("tell_errors", [True, False])
@pytest.mark.parametrize("tool", [sleeps, yields, in_thread, in_branch])
async def test_code_for_asyncio_is_named_with_the_page_to_read(
    mode: str, tool: Any, tell_errors: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server = offering(tell_errors)
    server.add_tool(tool, name="tool")
    result = await call(server, mode, "tool")
    assert result.is_error
    advice = "this tool runs on Trio"
    assert (advice in result.text) is tell_errors
    if not tell_errors:
        assert advice in caplog.text
        assert "docs/asyncio.md" in caplog.text


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
async def test_a_resource_names_the_page_too(mode: str) -> None:
    server = offering()
    server.add_resource("broken://sleeps", sleeps)
    async with client_of(server, mode) as client:
        with pytest.raises(PeerError) as caught:
            await client.read_resource("broken://sleeps")
        assert "docs/asyncio.md" in caught.value.message


@pytest.mark.parametrize("tell_errors", [True, False])
async def test_a_resource_that_looks_up_a_key_that_does_not_exist_names_what_to_raise(
    mode: str, tell_errors: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server, books = Server("library", version="1", options=ServiceOptions(tell_errors=tell_errors)), {"1": "Emma"}

    @server.resource("book://{number}")
    async def book(number: str) -> str:
        return books[number]

    async with client_of(server, mode) as client:
        with pytest.raises(PeerError) as caught:
            await client.read_resource("book://2")
    assert ("ResourceNotFound(uri)" in caught.value.message) is tell_errors
    if not tell_errors:
        assert "ResourceNotFound(uri)" in caplog.text


async def test_a_traceback_in_the_log_begins_with_the_code_of_the_author(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    await call(offering(), mode, "boom")
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.exc_info[2].tb_frame.f_code.co_name == "boom"


async def test_other_errors_of_these_types_get_no_advice(mode: str) -> None:
    async def tool() -> None:
        raise RuntimeError("the engine is not running")

    server = offering()
    server.add_tool(tool)
    assert (await call(server, mode, "tool")).text == "RuntimeError: the engine is not running"
