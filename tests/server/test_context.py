"""What a tool sees of its call."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator

import pytest
import trio
from naming import naming, unnamed
from one_tool import failure_of, success_of, talk_with
from talk import offering, talk_to
from trio.testing import MockClock, wait_all_tasks_blocked
from wire_terms import MODERN, NEWEST_LEGACY, SERVER_BUSY

from trio_mcp import CancelReason
from trio_mcp.errors import LimitExceeded, ToolError
from trio_mcp.server import Context, registration

# steps


async def test_a_step_runs_once_and_gives_its_result() -> None:
    calls: list[str] = []

    def search(to: str) -> list[str]:
        calls.append(to)
        return ["TP1"]

    async def weather(to: str, *, sunny: bool = True) -> str:
        await trio.lowlevel.checkpoint()
        return f"{to} {sunny}"

    async def book(ctx: Context) -> str:
        flights = await ctx.step("search", search, "Lisbon")
        with pytest.raises(ValueError, match=naming("'search'")):
            await ctx.step("search", search, "Oslo")
        return f"{flights} {await ctx.step('weather', weather, 'Lisbon')}"

    assert await success_of(book) == "['TP1'] Lisbon True"
    assert calls == ["Lisbon"]


async def test_each_branch_has_its_own_step_names() -> None:
    async def search(child: Context) -> str:
        return await child.step("search", lambda: "found")

    async def book(ctx: Context) -> str:
        await ctx.step("search/1", lambda: "in the body")
        return " ".join(await ctx.branch_all(search, search))

    assert await success_of(book) == "found found"


async def test_a_step_that_fails_may_be_tried_again() -> None:
    attempts: list[int] = []

    def unsteady() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError
        return "second time"

    async def book(ctx: Context) -> str:
        with pytest.raises(OSError):
            await ctx.step("search", unsteady)
        return await ctx.step("search", unsteady)

    assert await success_of(book) == "second time"


# branches


async def test_branches_side_by_side_give_their_values_in_order(autojump_clock: MockClock) -> None:
    def after(seconds: float, value: str) -> Callable[[Context], object]:
        async def branch(_child: Context) -> str:
            await trio.sleep(seconds)
            return value

        return branch

    async def book(ctx: Context) -> str:
        return "".join(await ctx.branch_all(after(3, "a"), after(1, "b"), after(2, "c")))

    assert await success_of(book) == "abc"
    assert trio.current_time() == 3


@pytest.mark.parametrize(
    ("errors", "read"),
    [
        ([ToolError("full")], "full"),
        ([ToolError("full"), LimitExceeded("later")], "full"),
        ([ToolError("full"), LookupError("hunter2")], "internal error"),
    ],
    ids=["one", "several", "one that is not for the caller"],
)
async def test_what_branches_raise_for_the_caller_is_what_the_caller_reads(errors: list[Exception], read: str) -> None:
    async def book() -> None:
        raise ExceptionGroup("branches", [ExceptionGroup("nested", errors)])

    assert unnamed(await failure_of(book), read) == []


# deadlines


async def test_a_call_over_its_time_is_an_error_result_that_names_the_timeout(autojump_clock: MockClock) -> None:
    seen: list[object] = []

    async def slow(ctx: Context) -> None:
        seen.append(ctx.deadline)
        try:
            await trio.sleep_forever()
        finally:
            seen.append(ctx.cancel_reason)

    assert unnamed(await failure_of(slow, name="slow", timeout=3), "slow", "3 seconds") == []
    assert seen == [3, CancelReason.DEADLINE]


async def test_a_scope_inside_the_tool_sets_the_deadline_and_is_no_cancel_reason(autojump_clock: MockClock) -> None:
    seen: list[object] = []

    async def book(ctx: Context) -> None:
        seen.append(ctx.deadline)
        with trio.move_on_after(3):
            seen.append(ctx.deadline)
            await trio.sleep_forever()
        seen.append(ctx.cancel_reason)

    await success_of(book)
    assert seen == [math.inf, 3, None]


# plain functions in threads


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds threads up; opened at the end, so that none outlives its test."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_plain_function_runs_in_a_thread_and_blocks_no_other_call(gate: threading.Event) -> None:
    def blocks() -> str:
        assert gate.wait(5)
        return threading.current_thread().name

    async def quick() -> str:
        return "quick"

    async with talk_to(offering(blocks, quick)) as talk:
        slow = talk.leg("blocks")
        assert await talk.text(talk.leg("quick")) == "quick"
        gate.set()
        assert threading.main_thread().name != await talk.text(slow)


async def test_a_thread_is_abandoned_when_its_time_is_up(gate: threading.Event) -> None:
    failure = await failure_of(lambda: gate.wait(5), name="blocks", timeout=0.05)
    assert unnamed(failure, "blocks", "0.05 seconds") == []


async def test_an_abandoned_thread_is_in_the_statistics_and_in_the_refusal_of_the_next_call(
    gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "MAX_THREADS", 1)
    entered = trio.Event()

    def stuck() -> None:
        trio.from_thread.run_sync(entered.set)
        assert gate.wait(5)

    async with talk_with(stuck) as talk:
        call = talk.leg("stuck")
        await entered.wait()
        talk.cancel(call)
        await wait_all_tasks_blocked()
        assert talk.service.statistics().threads._asdict() == {"running": 1, "abandoned": 1, "waiting": 0, "limit": 1}
        error = await talk.error(talk.leg("stuck"))
        assert error["code"] == SERVER_BUSY
        assert unnamed(error["message"], "1 threads", "1 of them", "abandoned") == []
        gate.set()


@pytest.mark.parametrize("error", [LookupError("hunter2"), SystemExit(1), StopIteration()], ids=repr)
async def test_what_a_plain_function_raises_is_contained(error: BaseException) -> None:
    def breaks() -> None:
        raise error

    text = await failure_of(breaks)
    assert "internal error" in text
    assert "hunter2" not in text


async def test_a_plain_function_that_returns_a_coroutine_is_awaited() -> None:
    async def later() -> str:
        await trio.lowlevel.checkpoint()
        return "later"

    def decorated() -> object:
        return later()

    assert await success_of(decorated) == "later"


# the request


async def test_the_request_tells_who_asks_and_how() -> None:
    seen: list[tuple[object, ...]] = []

    async def book(ctx: Context) -> str:
        request = ctx.request
        info = request.client_info
        seen.append(
            (request.id, request.method, request.protocol_version, request.principal, info.name if info else None)
        )
        assert request.client_capabilities.elicitation is not None
        return str(request.meta.get("x/y"))

    async with talk_to(offering(book), principal="ana") as talk:
        await talk.initialize()
        assert await talk.text(talk.call("book", id="old", meta={"x/y": 1})) == "1"
        assert await talk.text(talk.leg("book", id="new", meta={"x/y": 2})) == "2"
    assert seen == [("old", "tools/call", NEWEST_LEGACY, "ana", "tester"), ("new", "tools/call", MODERN, "ana", None)]


async def test_the_repr_shows_the_call_and_its_deadline(autojump_clock: MockClock) -> None:
    async def book(ctx: Context) -> str:
        return repr(ctx)

    shown = await success_of(book, name="book", timeout=3)
    assert shown == "<Context of <Call book tools/call ids=[1] open> deadline=3.0>"


# questions


async def test_a_log_message_below_the_threshold_is_not_encoded(caplog: pytest.LogCaptureFixture) -> None:
    async def logs(ctx: Context) -> None:
        await ctx.log("debug", {"a": math.nan})

    with caplog.at_level(logging.CRITICAL):
        await success_of(logs)
