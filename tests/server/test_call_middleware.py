"""Call middleware: runs once around each call, and may run its body again."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Annotated, Any

import pytest
import trio
from connected import connected
from naming import unnamed
from talk import talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import (
    CallHandler,
    CallRequest,
    CallResult,
    Context,
    PeerError,
    Provide,
    Server,
    ServiceOptions,
    ToolError,
    ToolResult,
    accept,
    accept_defaults,
)
from trio_mcp.types import CallToolResult, GetPromptResult


class Unsteady(Exception):
    pass


async def retry(call: CallRequest, handler: CallHandler) -> CallResult:
    """Run the body up to three times."""
    for _ in range(2):
        try:
            return await handler()
        except Unsteady:
            pass
    return await handler()


async def nothing() -> None: ...


def with_tool(
    body: Callable[..., Any] = nothing, *middleware: Any, options: ServiceOptions | None = None, **tool: Any
) -> Server:
    """A server whose tool `tool` has this body, with middleware around it."""
    server = Server("tester", middleware=middleware, options=options)
    server.add_tool(body, name="tool", **tool)
    return server


async def call(server: Server, **options: Any) -> CallToolResult:
    """Call the tool `tool`."""
    async with connected(server, **options) as client:
        return await client.call_tool("tool")


async def fails() -> None:
    raise ToolError("no")


# what it sees


async def test_it_sees_the_call_and_its_result(mode: Any) -> None:
    seen: list[object] = []
    server = Server("tester")

    @server.middleware
    async def watch(call: CallRequest, handler: CallHandler) -> CallResult:
        result = await handler()
        seen.append((call.kind, call.name, dict(call.arguments), call.ctx.request.method, call.principal, type(result)))
        return result

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.prompt
    async def review(code: str) -> str:
        return code

    @server.resource("config://app")
    async def config() -> str:
        return "x"

    async with connected(server, mode=mode) as client:
        await client.call_tool("add", {"a": 1, "b": 2})
        await client.get_prompt("review", {"code": "c"})
        await client.read_resource("config://app")
        await client.list_tools()
    assert [entry[:5] for entry in seen] == [  # type: ignore[index]
        ("tool", "add", {"a": 1, "b": 2}, "tools/call", None),
        ("prompt", "review", {"code": "c"}, "prompts/get", None),
        ("resource", "config://app", {}, "resources/read", None),
    ]


async def test_it_knows_the_principal_and_the_state() -> None:
    seen: list[object] = []

    async def watch(call: CallRequest, handler: CallHandler) -> CallResult:
        seen.append((call.principal, call.ctx.state))
        return await handler()

    async with talk_to(with_tool(nothing, watch), principal="ann") as talk:
        await talk.result(talk.leg("tool"))
    assert seen == [("ann", None)]


async def test_it_runs_once_around_all_legs_of_a_call(mode: Any) -> None:
    events: list[str] = []

    async def watch(call: CallRequest, handler: CallHandler) -> CallResult:
        events.append("before")
        try:
            return await handler()
        finally:
            events.append("after")

    async def body(ctx: Context) -> str:
        await ctx.elicit("?", bool)
        events.append("answered")
        return "done"

    await call(with_tool(body, watch), mode=mode, on_elicit=accept_defaults)
    assert events == ["before", "answered", "after"]


async def test_the_first_one_is_the_outermost() -> None:
    events: list[str] = []

    def named(name: str) -> Any:
        async def middleware(call: CallRequest, handler: CallHandler) -> CallResult:
            events.append(name)
            return await handler()

        return middleware

    server = with_tool(nothing, named("first"), named("second"))
    server.middleware(named("third"))
    await call(server)
    assert events == ["first", "second", "third"]


# what it decides


async def test_what_it_raises_is_the_error_of_the_call() -> None:
    async def map_errors(call: CallRequest, handler: CallHandler) -> CallResult:
        try:
            return await handler()
        except Unsteady as error:
            raise ToolError("the database is away") from error

    async def body() -> None:
        raise Unsteady

    server = with_tool(body, map_errors)
    server.add_resource("config://app", body)
    async with connected(server) as client:
        result = await client.call_tool("tool")
        assert (result.is_error, result.text) == (True, "the database is away")
        with pytest.raises(PeerError, match="the database is away"):
            await client.read_resource("config://app")


async def test_it_may_answer_without_the_body() -> None:
    async def refuse(call: CallRequest, handler: CallHandler) -> CallResult:
        return ToolResult(content=[], is_error=True)

    async def body() -> None:
        raise AssertionError("it ran")

    assert (await call(with_tool(body, refuse))).content == []


MISTAKES: dict[str, Callable[[CallRequest, Any], Any]] = {
    "not awaited": lambda call, handler: handler(),
    "used before it is awaited": lambda call, handler: handler().is_error,
    "given the call": lambda call, handler: handler(call),
    "given a name": lambda call, handler: handler(call=call),
}


@pytest.mark.filterwarnings("ignore:coroutine 'handler' was never awaited")
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_wrong_use_of_the_handler_names_what_to_write(mistake: str) -> None:
    async def wrong(call: CallRequest, handler: CallHandler) -> CallResult:
        return MISTAKES[mistake](call, handler)  # type: ignore[no-any-return]

    text = (await call(with_tool(nothing, wrong))).text
    assert unnamed(text, "TypeError", "await handler") == []


async def forgetful(call: CallRequest, handler: CallHandler) -> None:
    await handler()


async def with_nursery(call: CallRequest, handler: CallHandler) -> CallResult:
    async with trio.open_nursery():
        return await handler()


async def confuse(call: CallRequest, handler: CallHandler) -> CallResult:
    return GetPromptResult(messages=[])


@pytest.mark.parametrize(
    ("middleware", "body", "names"),
    [
        (forgetful, nothing, ["forgetful", "NoneType"]),
        (confuse, nothing, ["confuse", "GetPromptResult"]),
        (with_nursery, fails, ["no"]),
    ],
    ids=["no return", "a result of another kind", "a nursery around an error"],
)
async def test_the_error_of_a_call_has_the_name_of_its_cause(middleware: Any, body: Any, names: list[str]) -> None:
    result = await call(with_tool(body, middleware, max_result=4096))
    assert result.is_error
    assert unnamed(result.text, *names) == []
    assert "Group" not in result.text


# running the body again


async def test_each_run_of_the_body_has_separate_steps_and_questions(mode: Any) -> None:
    events: list[str] = []

    def note(what: str) -> int:
        events.append(what)
        return len(events)

    async def body(ctx: Context) -> str:
        number = await ctx.step("count", note, "step")
        answer = await ctx.elicit("?", bool)
        await ctx.branch(lambda child: child.step("count", note, f"branch in depth {child.depth}"))
        if number < 5:
            raise Unsteady
        return f"{answer.action} {number}"

    result = await call(with_tool(body, retry), mode=mode, on_elicit=lambda _question: accept(value=True))
    assert result.text == "accept 5"
    assert events == ["step", "branch in depth 1"] * 3


async def test_a_replay_finds_the_steps_and_answers_of_each_run() -> None:
    """The first run of the replay fails as it did before."""
    ran: list[int] = []
    asked: list[str] = []

    async def body(ctx: Context) -> str:
        run = await ctx.step("run", lambda: ran.append(1) or len(ran))
        answer = await ctx.elicit(f"run {run}?", bool)
        asked.append(answer.action)
        if run == 1:
            raise Unsteady
        return f"run {run}"

    async with talk_to(with_tool(body, retry, options=ServiceOptions(always_replay=True))) as talk:
        first = await talk.round(talk.leg("tool"))
        second = await talk.round(first.retry(True))
        assert (first.message, second.message) == ("run 1?", "run 2?")
        assert await talk.text(second.retry(True)) == "run 2"
    assert len(ran) == 2
    assert asked == ["accept", "accept", "accept"]


async def test_nested_retries_do_not_share_keys() -> None:
    names: list[str] = []

    async def body(ctx: Context) -> str:
        names.append(await ctx.step("once", lambda: f"run {len(names)}"))
        if len(names) < 9:
            raise Unsteady
        return names[-1]

    assert (await call(with_tool(body, retry, retry))).text == "run 8"
    assert names == [f"run {number}" for number in range(9)]


async def test_all_runs_share_the_token_budget() -> None:
    samples: list[str] = []

    async def body(ctx: Context) -> None:
        samples.append((await ctx.sample("?")).text)
        raise Unsteady

    def answer(_request: object) -> str:
        samples.append("asked")
        return "answer"

    ten = ServiceOptions(estimate_tokens=lambda _params, _result: 10)
    assert (await call(with_tool(body, retry, options=ten, token_budget=15), on_sample=answer)).is_error
    assert samples == ["asked", "answer", "asked"]


# garbage


@pytest.mark.parametrize("fails", [False, True])
async def test_a_call_with_middleware_and_providers_leaves_nothing_for_the_garbage_collector(fails: bool) -> None:
    class Value:
        """What a provider makes; it lives as long as the frames of the call."""

    made: list[weakref.ref[Value]] = []

    async def make() -> Value:
        value = Value()
        made.append(weakref.ref(value))
        return value

    async def tool(value: Value) -> None:
        if fails:
            raise Unsteady if len(made) < 3 else ToolError("no")

    tool.__annotations__["value"] = Annotated[Value, Provide(make)]
    async with connected(with_tool(tool, retry, limit=1)) as client:
        gc.collect()
        gc.disable()
        try:
            assert bool((await client.call_tool("tool")).is_error) is fails
            await wait_all_tasks_blocked()
            assert [value() for value in made] == [None] * (3 if fails else 1)
        finally:
            gc.enable()


# registration


def test_middleware_must_be_an_async_function_of_two_arguments() -> None:
    def plain(call: CallRequest, handler: CallHandler) -> None: ...

    async def one(call: CallRequest) -> None: ...

    for wrong in (plain, one, CallRequest, 3):
        with pytest.raises(TypeError, match="CallHandler"):
            Server("tester", middleware=[wrong])  # type: ignore[list-item]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_handler_that_was_stored_runs_nothing_after_its_middleware_has_ended(fails: bool) -> None:
    stored: list[CallHandler] = []
    runs: list[int] = []

    async def keep(call: CallRequest, handler: CallHandler) -> CallResult:
        stored.append(handler)
        if fails:
            raise ToolError("rejected")
        return await handler()

    async def body() -> None:
        runs.append(1)

    await call(with_tool(body, keep))
    before = len(runs)
    with pytest.raises(RuntimeError) as raised:
        await stored[0]()
    assert unnamed(str(raised.value), "keep", "tool") == []
    assert (before, len(runs)) == (0 if fails else 1, before)
