"""What a tool sees of its call."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator

import pytest
import trio
from naming import naming, unnamed
from talk import EVERYTHING, Talk, accept, talk_to
from trio.testing import MockClock

from trio_mcp.errors import LimitExceeded, ToolError
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY
from trio_mcp.runtime import CancelReason
from trio_mcp.server import Accepted, Context, FormError, Server
from trio_mcp.types import ModelPreferences, SamplingMessage, TextContent


@pytest.fixture
def server() -> Server:
    return Server("tester")


async def opened(talk: Talk) -> Talk:
    await talk.initialize()
    return talk


# steps


async def test_a_step_runs_once_and_gives_its_result(server: Server) -> None:
    calls: list[str] = []

    def search(to: str) -> list[str]:
        calls.append(to)
        return ["TP1"]

    async def weather(to: str, *, sunny: bool = True) -> str:
        await trio.lowlevel.checkpoint()
        return f"{to} {sunny}"

    @server.tool
    async def book(ctx: Context) -> str:
        flights = await ctx.step("search", search, "Lisbon")
        return f"{flights} {await ctx.step('weather', weather, 'Lisbon')}"

    async with talk_to(server) as talk:
        assert await talk.text(talk.leg("book")) == "['TP1'] Lisbon True"
    assert calls == ["Lisbon"]


async def test_the_name_of_a_step_is_used_once(server: Server) -> None:
    ran: list[int] = []

    @server.tool
    async def book(ctx: Context) -> str:
        await ctx.step("search", ran.append, 1)
        with pytest.raises(ValueError, match=naming("'search'")):
            await ctx.step("search", ran.append, 2)
        return "done"

    async with talk_to(server) as talk:
        assert await talk.text(talk.leg("book")) == "done"
    assert ran == [1]


async def test_each_branch_has_step_names_of_its_own(server: Server) -> None:
    @server.tool
    async def book(ctx: Context) -> str:
        async def search(child: Context) -> str:
            return await child.step("search", lambda: "found")

        await ctx.step("search/1", lambda: "in the body")
        return " ".join(await ctx.branch_all(search, search))

    async with talk_to(server) as talk:
        assert await talk.text(talk.leg("book")) == "found found"


async def test_a_step_that_fails_is_not_done_and_may_be_tried_again(server: Server) -> None:
    attempts: list[int] = []

    def unsteady() -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise OSError
        return "second time"

    @server.tool
    async def book(ctx: Context) -> str:
        with pytest.raises(OSError):
            await ctx.step("search", unsteady)
        return await ctx.step("search", unsteady)

    async with talk_to(server) as talk:
        assert await talk.text(talk.leg("book")) == "second time"


# branches


async def test_branches_side_by_side_give_their_values_in_order(server: Server, autojump_clock: MockClock) -> None:
    @server.tool
    async def book(ctx: Context) -> str:
        def after(seconds: float, value: str) -> Callable[[Context], object]:
            async def branch(_child: Context) -> str:
                await trio.sleep(seconds)
                return value

            return branch

        return "".join(await ctx.branch_all(after(3, "a"), after(1, "b"), after(2, "c")))

    async with talk_to(server) as talk:
        assert await talk.text(talk.leg("book")) == "abc"
    assert trio.current_time() == 3


@pytest.mark.parametrize("errors", [[ToolError("full")], [ToolError("full"), LimitExceeded("later")]], ids=len)
async def test_what_branches_raise_for_the_caller_is_what_the_caller_reads(
    server: Server, errors: list[Exception]
) -> None:
    @server.tool
    async def book(ctx: Context) -> str:
        raise ExceptionGroup("branches", [ExceptionGroup("nested", errors)])

    async with talk_to(server) as talk:
        assert await talk.failure(talk.leg("book")) == "full"


async def test_branches_that_also_fail_unexpectedly_tell_the_caller_nothing(server: Server) -> None:
    @server.tool
    async def book(ctx: Context) -> str:
        raise ExceptionGroup("branches", [ToolError("full"), LookupError("hunter2")])

    async with talk_to(server) as talk:
        assert "internal error" in await talk.failure(talk.leg("book"))


# deadlines


async def test_a_call_over_its_time_is_an_error_result_that_says_so(server: Server, autojump_clock: MockClock) -> None:
    seen: list[object] = []

    @server.tool(timeout=3)
    async def slow(ctx: Context) -> str:
        seen.append(ctx.deadline)
        try:
            await trio.sleep_forever()
        finally:
            seen.append(ctx.cancel_reason)
        return "never"

    async with talk_to(server) as talk:
        assert unnamed(await talk.failure(talk.leg("slow")), "slow", "3 seconds") == []
    assert seen == [3, CancelReason.DEADLINE]


async def test_without_a_timeout_there_is_no_deadline_and_a_scope_of_the_tools_own_counts(
    server: Server, autojump_clock: MockClock
) -> None:
    seen: list[float] = []

    @server.tool
    async def book(ctx: Context) -> str:
        seen.append(ctx.deadline)
        with trio.move_on_after(5):
            await trio.lowlevel.checkpoint()
            seen.append(ctx.deadline)
        return "done"

    async with talk_to(server) as talk:
        await talk.text(talk.leg("book"))
    assert [math.inf, 5] == seen


async def test_there_is_no_cancel_reason_while_nothing_was_cancelled(server: Server) -> None:
    seen: list[object] = []

    @server.tool
    async def book(ctx: Context) -> str:
        with trio.CancelScope() as scope:
            scope.cancel()
            await trio.sleep_forever()
        seen.append(ctx.cancel_reason)
        return "done"

    async with talk_to(server) as talk:
        await talk.text(talk.leg("book"))
    assert seen == [None]


# plain functions in threads


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Holds threads up; opened at the end, so that none outlives its test."""
    event = threading.Event()
    yield event
    event.set()


async def test_a_plain_function_runs_in_a_thread_and_holds_nobody_up(server: Server, gate: threading.Event) -> None:
    @server.tool
    def blocks() -> str:
        assert gate.wait(5)
        return threading.current_thread().name

    @server.tool
    async def quick() -> str:
        return "quick"

    async with talk_to(server) as talk:
        slow = talk.leg("blocks")
        assert await talk.text(talk.leg("quick")) == "quick"
        gate.set()
        assert threading.main_thread().name != await talk.text(slow)


async def test_a_thread_is_abandoned_when_its_time_is_up(server: Server, gate: threading.Event) -> None:
    @server.tool(timeout=0.05)
    def blocks() -> str:
        gate.wait(5)
        return "too late"

    async with talk_to(server) as talk:
        assert unnamed(await talk.failure(talk.leg("blocks")), "blocks", "0.05 seconds") == []


async def test_a_plain_function_may_use_its_context_through_trio(server: Server) -> None:
    @server.tool
    def asks(ctx: Context) -> str:
        answer = trio.from_thread.run(ctx.elicit, "How many?", int)
        return f"{answer.content}"

    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg("asks"))
        last = talk.leg("asks", state=asked.state, answers={asked.key: accept(value=3)})
        assert await talk.text(last) == "3"


async def test_what_a_plain_function_raises_is_contained(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    @server.tool
    def breaks(kind: str) -> str:
        raise {"lookup": LookupError("hunter2"), "exit": SystemExit(1), "stop": StopIteration()}[kind]

    async with talk_to(server) as talk:
        for kind in ("lookup", "exit", "stop"):
            text = await talk.failure(talk.leg("breaks", {"kind": kind}))
            assert "internal error" in text
            assert "hunter2" not in text


async def test_a_plain_function_that_returns_a_coroutine_is_awaited(server: Server) -> None:
    async def later() -> str:
        await trio.lowlevel.checkpoint()
        return "later"

    def decorated() -> object:
        return later()

    server.tool(name="tool")(decorated)
    async with talk_to(server) as talk:
        assert await talk.text(talk.leg("tool")) == "later"


# knowing


async def test_the_request_tells_who_asks_and_how(server: Server) -> None:
    seen: list[tuple[object, ...]] = []

    @server.tool
    async def book(ctx: Context) -> str:
        request = ctx.request
        info = request.client_info
        seen.append(
            (request.id, request.method, request.protocol_version, request.principal, info.name if info else None)
        )
        assert request.client_capabilities.elicitation is not None
        return str(request.meta.get("x/y"))

    async with talk_to(server, principal="ana") as talk:
        await opened(talk)
        assert await talk.text(talk.call("book", id="old", meta={"x/y": 1})) == "1"
        assert await talk.text(talk.leg("book", id="new", meta={"x/y": 2})) == "2"
    assert seen == [
        ("old", "tools/call", NEWEST_LEGACY, "ana", "tester"),
        ("new", "tools/call", MODERN, "ana", None),
    ]


async def test_the_repr_shows_the_call_and_its_deadline(server: Server, autojump_clock: MockClock) -> None:
    @server.tool(timeout=3)
    async def book(ctx: Context) -> str:
        return repr(ctx)

    async with talk_to(server) as talk:
        assert await talk.text(talk.leg("book")) == "<Context of <Call book tools/call ids=[1] open> deadline=3.0>"


# asking


async def test_a_schema_that_is_no_form_is_refused_before_anything_is_sent(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    @server.tool
    async def book(ctx: Context) -> str:
        with pytest.raises(FormError, match="value"):
            await ctx.elicit("Which?", dict[str, int])
        return "refused"

    async with talk_to(server) as talk:
        assert await talk.text(talk.leg("book")) == "refused"


async def test_every_parameter_of_a_sample_is_forwarded(server: Server) -> None:
    @server.tool
    async def book(ctx: Context) -> str:
        sampled = await ctx.sample(
            messages=[SamplingMessage(role="user", content=TextContent(text="hi"))],
            max_tokens=7,
            system_prompt="Be short.",
            temperature=0.5,
            stop_sequences=["END"],
            model_preferences=ModelPreferences(speed_priority=1),
            metadata={"a": 1},
        )
        return sampled.text

    async with talk_to(server) as talk:
        asked = await talk.round(talk.leg("book"))
        params = asked.questions[asked.key]["params"]
        assert params["messages"][0]["content"]["text"] == "hi"
        expected = {
            "maxTokens": 7,
            "systemPrompt": "Be short.",
            "temperature": 0.5,
            "stopSequences": ["END"],
            "modelPreferences": {"speedPriority": 1},
            "metadata": {"a": 1},
        }
        assert expected == {name: params[name] for name in expected}
        blocks = [{"type": "text", "text": text} for text in ("a", "b")]
        sample = {"role": "assistant", "content": blocks, "model": "m"}
        assert await talk.text(talk.leg("book", state=asked.state, answers={asked.key: sample})) == "ab"


@pytest.mark.parametrize("both", [False, True], ids=["neither", "both"])
async def test_a_sample_takes_either_a_prompt_or_messages(server: Server, both: bool) -> None:
    @server.tool
    async def book(ctx: Context) -> str:
        with pytest.raises(TypeError, match="either a prompt or messages"):
            await ctx.sample("hi" if both else None, messages=[] if both else None)
        return "refused"

    async with talk_to(server) as talk:
        assert await talk.text(talk.leg("book")) == "refused"


async def test_a_loop_may_ask_until_it_is_content(server: Server) -> None:
    @server.tool
    async def guess(ctx: Context) -> str:
        low, high = 0, 8
        while high - low > 1:
            middle = (low + high) // 2
            answer = await ctx.elicit(f"Is it at least {middle}?", bool)
            assert isinstance(answer, Accepted)
            low, high = (middle, high) if answer.content else (low, middle)
        return str(low)

    async with talk_to(server) as talk:
        request_id = talk.leg("guess")
        for at_least in (True, False, True):
            asked = await talk.round(request_id)
            request_id = talk.leg("guess", state=asked.state, answers={asked.key: accept(value=at_least)})
        assert await talk.text(request_id) == "5"


async def test_a_log_threshold_spares_the_encoding_of_what_nobody_wants(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """What is not sent is not looked at: a message that JSON cannot say harms only who wants to hear it."""

    @server.tool
    async def logs(ctx: Context) -> str:
        await ctx.log("debug", {"a": math.nan})
        return "done"

    async with talk_to(server) as talk:
        with caplog.at_level(logging.CRITICAL):
            assert await talk.text(talk.leg("logs", capabilities=EVERYTHING)) == "done"
