"""Values that JSON cannot hold, in a conversation with a model: each is an error where it comes from, not where it is sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from trio_mcp import BreakToolLoop, Context, ProviderError, Server
from trio_mcp.errors import LocalProtocolError, ProviderErrorKind
from trio_mcp.testing import MockClient, make_context, tool_use, unchecked_tool_use
from trio_mcp.types import (
    CallToolResult,
    ClientCapabilities,
    CreateMessageRequestParams,
    CreateMessageResult,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)

both_eras = pytest.mark.parametrize("era", ["modern", "legacy"])

LONE = "\ud800"
"""A lone surrogate: Python decodes the names of files to it that are not UTF-8."""


async def list_files() -> str:
    return f"a.txt {LONE}.txt"


async def measure() -> CallToolResult:
    return CallToolResult(content=[], structured_content={"height": float("inf")})


@both_eras
@pytest.mark.parametrize("resume", ["parked", "replay"])
@pytest.mark.parametrize("function", [list_files, measure])
async def test_the_result_of_a_tool_in_a_loop_is_an_error_for_the_model(function: Any, resume: Any, era: str) -> None:
    server = Server("s")

    @server.tool(resume=resume)
    async def lead(ctx: Context) -> str:
        return (await ctx.run_tool_loop("Go.", [function])).text

    client = MockClient(samples=[tool_use(function.__name__), "sorry"], era=era)
    assert (await client.call((server, "lead"))).text == "sorry"
    params = client.questions[1].params
    assert isinstance(params, CreateMessageRequestParams)
    (result,) = params.messages[-1].content  # type: ignore[misc]
    assert isinstance(result, ToolResultContent)
    assert result.is_error
    assert isinstance(result.content[0], TextContent)
    assert function.__name__ in result.content[0].text


@pytest.mark.parametrize(
    "output", [LONE, [float("nan")], ToolResultContent(tool_use_id="f", content=[TextContent(text=LONE)])]
)
async def test_a_result_that_is_added_is_refused_at_once(output: object) -> None:
    async with make_context(samples=[unchecked_tool_use("f")]) as ctx:
        answer = await ctx.sample("Go.", tools=[list_files])
        before = ctx.messages
        with pytest.raises(TypeError, match=r"'f'|JSON"):
            ctx.add_tool_results({answer.tool_calls[0].id: output})
        assert ctx.messages == before


def test_a_break_has_a_text_that_can_be_sent() -> None:
    with pytest.raises(ValueError, match="surrogate"):
        BreakToolLoop(text=LONE)


@both_eras
@pytest.mark.parametrize(
    "block",
    [
        TextContent(text=LONE),
        ToolUseContent(id="1", name="f", input={"x": float("nan")}),
        TextContent(text="x", meta={"x": [LONE]}),
    ],
    ids=["text", "number", "meta"],
)
async def test_an_answer_of_the_provider_is_malformed(block: Any, era: str) -> None:
    class Odd:
        async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
            await trio.lowlevel.checkpoint()
            return CreateMessageResult(role="assistant", content=block, model="m")

    server = Server("s", sampling=Odd())

    @server.tool(resume="replay")
    async def ask(ctx: Context) -> str:
        with pytest.raises(ProviderError) as caught:
            await ctx.sample("Go.", tools=[list_files])
        assert caught.value.kind is ProviderErrorKind.MALFORMED
        return "named"

    client = MockClient(capabilities=ClientCapabilities(), era=era)
    assert (await client.call((server, "ask"))).text == "named"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"temperature": float("nan")}, ValueError),
        ({"temperature": float("inf")}, ValueError),
        ({"temperature": True}, TypeError),
        ({"temperature": "hot"}, TypeError),
        ({"metadata": [1]}, TypeError),
        ({"metadata": {"x": float("inf")}}, ValueError),
        ({"metadata": {"x": object()}}, ValueError),
        ({"system_prompt": LONE}, ValueError),
        ({"stop_sequences": [LONE]}, ValueError),
        ({"timeout": 0}, ValueError),
        ({"timeout": "1"}, TypeError),
    ],
)
async def test_an_option_is_refused_by_the_call_itself(options: Any, error: type[Exception]) -> None:
    async with make_context(samples=[]) as ctx:
        asks: list[Any] = [ctx.sample, partial(ctx.run_tool_loop, tools=[])]
        for ask in asks:
            with pytest.raises(error, match=next(iter(options))):
                ask("Go.", **options)


ASKS: list[Callable[[Context], Awaitable[object]]] = [
    lambda ctx: ctx.sample(LONE),
    lambda ctx: ctx.sample([TextContent(text=LONE), "Go."]),
    lambda ctx: ctx.sample(messages=[SamplingMessage(role="user", content=TextContent(text=LONE))]),
    lambda ctx: ctx.run_tool_loop(LONE, []),
    lambda ctx: ctx.elicit(LONE, str),
]


@both_eras
@pytest.mark.parametrize("resume", ["parked", "replay"])
@pytest.mark.parametrize("ask", ASKS)
async def test_a_question_is_an_error_in_the_body_that_asks_and_its_siblings_go_on(
    ask: Any, resume: Any, era: str
) -> None:
    server = Server("s")

    @server.tool(resume=resume)
    async def lead(ctx: Context) -> str:
        async def fail(branch: Context) -> str:
            with pytest.raises((LocalProtocolError, ValueError), match="lone surrogate"):
                await ask(branch)
            return (await branch.sample("And then?")).text

        async def other(branch: Context) -> str:
            return (await branch.sample("Who?")).text

        return " ".join(await ctx.branch_all(fail, other))

    client = MockClient(samples=["fine", "fine"], era=era)
    assert (await client.call((server, "lead"))).text == "fine fine"
