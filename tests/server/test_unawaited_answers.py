"""A forgotten `await` before a method of the context that returns a value."""

from __future__ import annotations

import gc
import operator
import warnings
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trio
from naming import naming
from one_tool import failure_of

from trio_mcp import Context
from trio_mcp.testing import make_context

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


async def test_wrong_arguments_are_an_error_before_the_await() -> None:
    async with make_context() as ctx:
        with pytest.raises(TypeError, match=naming("message")):
            ctx.elicit(3, bool)  # type: ignore[call-overload,unused-coroutine]
        with pytest.raises(TypeError):
            ctx.sample("Hello", tokens=3)  # type: ignore[call-arg,unused-coroutine]


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
