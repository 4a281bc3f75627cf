"""A forgotten `await` before a method of the context that returns a value."""

from __future__ import annotations

import gc
import operator
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
import trio
from naming import naming, unnamed
from one_tool import failure_of, success_of
from talk import offering

from trio_mcp import CallHandler, CallRequest, CallResult, Context, Provide, Server, ToolError
from trio_mcp.errors import LocalProtocolError
from trio_mcp.testing import MockClient, make_context
from trio_mcp.types import CallToolResult

METHODS: dict[str, Callable[[Context], Any]] = {
    "ctx.elicit": lambda ctx: ctx.elicit("Delete?", bool),
    "ctx.elicit.strict": lambda ctx: ctx.elicit.strict("Delete?", bool),
    "ctx.elicit.with_retry": lambda ctx: ctx.elicit.with_retry("Delete?", bool, on_decline="error"),
    "ctx.elicit_url": lambda ctx: ctx.elicit_url("Connect", "https://example.com"),
    "ctx.sample": lambda ctx: ctx.sample("Hello"),
    "ctx.sample_schema": lambda ctx: ctx.sample_schema("Hello", int),
    "ctx.sample_tools": lambda ctx: ctx.sample_tools("Hello", [look]),
    "ctx.run_tool_loop": lambda ctx: ctx.run_tool_loop("Hello", [look]),
    "ctx.roots": lambda ctx: ctx.roots(),
    "ctx.step": lambda ctx: ctx.step("search", list),
    "ctx.read_resource": lambda ctx: ctx.read_resource("test://one"),
    "ctx.get_prompt": lambda ctx: ctx.get_prompt("greet"),
    "ctx.branch": lambda ctx: ctx.branch(child),
    "ctx.branch_all": lambda ctx: ctx.branch_all(child, child),
    "ctx.branch_race": lambda ctx: ctx.branch_race(child, child),
    "ctx.progress": lambda ctx: ctx.progress(1),
    "ctx.log": lambda ctx: ctx.log("info", "one"),
    "ctx.debug": lambda ctx: ctx.debug("one"),
    "ctx.info": lambda ctx: ctx.info("one"),
    "ctx.warning": lambda ctx: ctx.warning("one"),
    "ctx.error": lambda ctx: ctx.error("one"),
    "ctx.status": lambda ctx: ctx.status("reading"),
    "ctx.become_task": lambda ctx: ctx.become_task(),
    "ctx.end_stream": lambda ctx: ctx.end_stream(),
}
every_method = pytest.mark.parametrize("name", list(METHODS))

USES: dict[str, Callable[[Any], object]] = {
    "truth": bool,
    "negation": operator.not_,
    "attribute": operator.attrgetter("action"),
    "optional attribute": lambda answer: getattr(answer, "data", None),
    "equality": lambda answer: answer == "accept",
    "inequality": lambda answer: answer != "accept",
    "order": lambda answer: answer < 3,
    "iteration": list,
    "item": lambda answer: answer["seat"],
    "membership": lambda answer: "seat" in answer,
    "length": len,
    "text": str,
    "format": lambda answer: f"{answer:>3}",
}


def look(at: str) -> str:
    return at


async def child(_child: Context) -> int:
    return 1


@every_method
async def test_its_use_is_an_error_that_names_the_method(name: str) -> None:
    async with make_context() as ctx:
        with warnings.catch_warnings(record=True) as logged, pytest.raises(TypeError, match=naming(f"await {name}")):
            bool(METHODS[name](ctx))
        gc.collect()
    assert not logged, "the error has said it"


@pytest.mark.parametrize("use", USES)
async def test_every_use_of_the_value_is_an_error(use: str) -> None:
    async with make_context() as ctx:
        with pytest.raises(TypeError, match=naming("await ctx.elicit")):
            USES[use](ctx.elicit("Delete?", bool))


@every_method
async def test_a_value_that_nothing_uses_is_a_warning_that_names_the_method(name: str) -> None:
    with pytest.raises(AssertionError, match=naming(name)):  # noqa: PT012  the block ends the call
        async with make_context() as ctx:
            with warnings.catch_warnings(record=True) as logged:
                warnings.simplefilter("always")
                METHODS[name](ctx)
                gc.collect()
    (warning,) = logged
    assert str(warning.message) == f"coroutine {name!r} was never awaited"


@pytest.mark.filterwarnings("ignore:coroutine 'ctx.elicit.strict' was never awaited")
async def test_a_tool_that_returns_the_value_fails_with_the_name_of_the_method() -> None:
    async def forgetful(ctx: Context) -> Any:
        return ctx.elicit.strict("Name?", str)

    assert "ctx.elicit.strict() was not awaited" in await failure_of(forgetful)


async def test_the_value_is_a_coroutine_for_trio() -> None:
    async with make_context(elicits=[True, True], samples=["hello"]) as ctx:
        asking = ctx.elicit("Sure?", bool)
        assert isinstance(asking, Coroutine)
        assert (await asking).action == "accept"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.elicit, "Really?", bool)
            nursery.start_soon(ctx.sample, "Hello")


async def test_a_call_in_place_of_the_function_gets_the_advice_of_trio() -> None:
    async with make_context() as ctx, trio.open_nursery() as nursery:
        with pytest.raises(TypeError, match="incorrect"):
            nursery.start_soon(ctx.elicit("Sure?", bool))


async def test_the_value_can_be_shown_and_stored_before_it_is_awaited() -> None:
    async with make_context(elicits=[True]) as ctx:
        asking = ctx.elicit("Sure?", bool)
        assert "ctx.elicit" in repr(asking)
        assert len({asking}) == 1
        assert not hasattr(asking, "cr_frame"), "Trio asks for it"
        await asking


async def test_a_mistake_while_the_answer_is_awaited_does_not_end_the_question() -> None:
    async with make_context(elicits=[True]) as ctx, trio.open_nursery() as nursery:
        asking = ctx.elicit("Sure?", bool)

        async def wait() -> None:
            assert (await asking).action == "accept"

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(TypeError, match=naming("await ctx.elicit")):
            bool(asking)


# dropped


async def ask_and_drop(ctx: Context) -> str:
    ctx.elicit.strict("Delete all?")  # type: ignore[unused-coroutine]
    return "deleted"


async def ask_and_keep(ctx: Context) -> str:
    _answer = ctx.elicit("Delete all?", bool)
    return "deleted"


HELD: list[object] = []


async def ask_and_hold(ctx: Context) -> str:
    HELD.append(ctx.elicit("Delete all?", bool))
    return "deleted"


async def step_and_drop(ctx: Context) -> str:
    ctx.step("search", list)  # type: ignore[unused-coroutine]
    return "deleted"


async def drop_in_a_branch(ctx: Context) -> str:
    return await ctx.branch(ask_and_drop)


async def drop_in_a_group(ctx: Context) -> str:
    async with ctx.branches() as group:
        handle = group.start(ask_and_drop)
    return handle.value


async def drop_in_a_race(ctx: Context) -> str:
    return await ctx.branch_race(ask_and_drop)


async def tell_and_drop(ctx: Context) -> str:
    ctx.status("deleting")  # type: ignore[unused-coroutine]
    return "deleted"


async def become_and_drop(ctx: Context) -> str:
    ctx.become_task()  # type: ignore[unused-coroutine]
    return "deleted"


DROPPING = {
    tell_and_drop: "ctx.status",
    become_and_drop: "ctx.become_task",
    ask_and_drop: "ctx.elicit.strict",
    ask_and_keep: "ctx.elicit",
    ask_and_hold: "ctx.elicit",
    step_and_drop: "ctx.step",
    drop_in_a_branch: "ctx.elicit.strict",
    drop_in_a_group: "ctx.elicit.strict",
    drop_in_a_race: "ctx.elicit.strict",
}
never_awaited = pytest.mark.filterwarnings("ignore:coroutine 'ctx.* was never awaited")


@never_awaited
@pytest.mark.parametrize("legacy", [True, False], ids=["legacy", "modern"])
@pytest.mark.parametrize("function", list(DROPPING), ids=lambda function: function.__name__)
async def test_a_body_that_drops_a_question_fails_when_it_returns(function: Callable[..., Any], legacy: bool) -> None:
    text = await failure_of(function, legacy=legacy, name="delete_notes")
    assert unnamed(text, "delete_notes", f"await {DROPPING[function]}") == []
    HELD.clear()


@never_awaited
async def test_a_branch_that_drops_a_question_fails_alone() -> None:
    async def tolerant(ctx: Context) -> str:
        with pytest.raises(LocalProtocolError, match=naming("ctx.elicit.strict")):
            await ctx.branch(ask_and_drop)
        return "kept"

    assert await success_of(tolerant) == "kept"


SEEN: list[str] = []


@asynccontextmanager
async def transaction() -> AsyncIterator[str]:
    try:
        yield "open"
    except LocalProtocolError:
        SEEN.append("provider")
        raise


@never_awaited
async def test_what_runs_around_a_body_sees_its_failure() -> None:
    SEEN.clear()

    async def delete(ctx: Context, state: Annotated[str, Provide(transaction)]) -> str:
        return await ask_and_drop(ctx)

    server = offering(delete)

    @server.middleware
    async def audit(_call: CallRequest, handler: CallHandler) -> CallResult:
        try:
            return await handler()
        except LocalProtocolError:
            SEEN.append("middleware")
            raise

    assert (await MockClient().call(delete)).is_error
    assert SEEN == ["provider", "middleware"]


@pytest.mark.filterwarnings("ignore:coroutine 'handler' was never awaited")
async def test_a_middleware_that_drops_its_handler_fails() -> None:
    async def delete() -> str:
        return "deleted"

    server = offering(delete)

    @server.middleware
    async def skip(_call: CallRequest, handler: CallHandler) -> CallResult:
        handler()  # type: ignore[unused-awaitable,unused-coroutine]
        return CallToolResult(content=[])

    result = await MockClient().call(delete)
    assert result.is_error
    assert unnamed(result.text, "delete", "await handler") == []


@never_awaited
async def test_the_exception_of_a_body_that_dropped_a_question_wins() -> None:
    async def failing(ctx: Context) -> str:
        ctx.elicit("Delete?", bool)  # type: ignore[unused-coroutine]
        raise ToolError("the disk is full")

    assert await failure_of(failing) == "the disk is full"


async def test_a_question_may_be_awaited_elsewhere_or_closed() -> None:
    async def careful(ctx: Context) -> str:
        asking, unused = ctx.elicit("Delete?", bool), ctx.elicit("Sure?", bool)
        unused.close()

        async def wait(_child: Context) -> str:
            return (await asking).action

        action = await ctx.branch(wait)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.elicit.strict, "Really?", bool)
        return action

    assert (await MockClient(elicits=[True, True]).call(careful)).text == "accept"


@never_awaited
async def test_the_last_phase_of_a_handoff_does_not_run_after_a_question_that_was_dropped() -> None:
    server, ran = Server("notes"), list[str]()

    async def forget(_value: str, ctx: Context) -> str:
        return await ask_and_drop(ctx)

    async def complete(_value: str, _answer: str, ctx: Context) -> str:
        ran.append("after")
        return "deleted"

    @server.handoff_tool(client=forget, after=complete)
    async def delete() -> str:
        return "held"

    assert (await MockClient().call(delete)).is_error
    assert ran == []
