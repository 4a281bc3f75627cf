"""A plain function runs in a thread: it asks and reports through Trio, and a forgotten way there is an error at once."""

from __future__ import annotations

import pytest
import trio
from talk import offering
from test_unawaited_answers import METHODS

from trio_mcp import Client, Context


@pytest.mark.parametrize("name", ["progress", "log", "debug", "info", "warning", "error", "end_stream"])
@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_a_report_of_a_thread_without_trio_is_an_error_that_says_what_to_write(name: str, mode: str) -> None:
    def work(ctx: Context) -> None:
        getattr(ctx, name)(1, 2)

    with trio.fail_after(10):
        async with Client.connect(offering(work), mode=mode) as client:
            result = await client.call_tool("work")
    assert result.is_error
    assert f"trio.from_thread.run(ctx.{name}, ...)" in (result.text or "")


@pytest.mark.parametrize("name", [name for name in METHODS if name.startswith("ctx.")])
async def test_a_question_of_a_thread_without_trio_is_an_error_before_the_tool_goes_on(name: str) -> None:
    went_on: list[str] = []

    def wipe(ctx: Context) -> str:
        METHODS[name](ctx)
        went_on.append(name)
        return "WIPED"

    with trio.fail_after(10):
        async with Client.connect(offering(wipe)) as client:
            result = await client.call_tool("wipe")
    assert (result.is_error, went_on) == (True, [])
    assert f"trio.from_thread.run({name}, ...)" in (result.text or "")


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_a_thread_reports_through_trio(mode: str) -> None:
    heard: list[object] = []

    def work(ctx: Context) -> str:
        trio.from_thread.run(ctx.info, "working")
        return "done"

    with trio.fail_after(10):
        async with Client.connect(offering(work), mode=mode, on_log=lambda log: heard.append(log.data)) as client:
            assert (await client.call_tool("work")).text == "done"
    assert heard == ["working"]
