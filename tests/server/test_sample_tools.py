"""`ctx.sample` with tools: what a model is offered, the calls in its answer, and their results."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from naming import unnamed
from pydantic import BaseModel
from scripted_model import answer, message, requests_of, use

from trio_mcp import Context, SampleInvalid, Server, ToolError, tool
from trio_mcp.errors import CapabilityError, LocalProtocolError, MalformedAnswer
from trio_mcp.testing import MockClient, make_context, tool_use, unchecked_tool_use
from trio_mcp.types import (
    CallToolResult,
    ClientCapabilities,
    ImageContent,
    JsonObject,
    SamplingCapability,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
)


def plain(**sampling: JsonObject) -> ClientCapabilities:
    return ClientCapabilities(sampling=SamplingCapability(**sampling))


class Query(BaseModel):
    query: str


async def weather(city: str, ctx: Context, days: int = 1) -> str:
    """Say how the weather will be."""
    raise AssertionError("a tool that is offered does not run by itself")


SEARCH = Tool(name="search", input_schema={"type": "object", "properties": {"query": {"type": "string"}}})


# what is offered


async def test_a_function_is_offered_as_a_server_would_list_it(mode: str) -> None:
    listed = Server("s").add_tool(weather).model
    client = MockClient(samples=["no"], era=mode)
    async with client.context() as ctx:
        await ctx.sample("Rain?", tools=[weather])
    (offered,) = requests_of(client)[-1].tools or []
    assert offered == Tool(name="weather", description=listed.description, input_schema=listed.input_schema)
    assert "ctx" not in str(offered.input_schema)


async def test_tools_of_the_protocol_and_of_a_server_are_offered_as_they_are() -> None:
    built = tool("lookup").description("Look it up.").parameters(Query).execute(lambda params, ctx: "")
    client = MockClient(samples=["no"])
    async with client.context() as ctx:
        await ctx.sample("Rain?", tools=[SEARCH, built], tool_choice="auto")
    params = requests_of(client)[-1]
    assert params.tools == [SEARCH, built.model]
    assert params.tool_choice == ToolChoice(mode="auto")


def search(query: str) -> str:
    return query


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"tools": [search, SEARCH]}, ValueError, "search"),
        ({"tools": [Tool(name="__schema__", input_schema={"type": "object"})]}, ValueError, "__schema__"),
        ({"tools": [Tool(name="a b", input_schema={"type": "object"})]}, ValueError, "a b"),
        ({"tools": [tool("half").description("Half.")]}, TypeError, "half"),
        ({"tools": [dict]}, TypeError, "dict"),
        ({"tools": ["search"]}, TypeError, "search"),
        ({"tools": search}, TypeError, "search"),
        ({"tools": [lambda ctx: ctx]}, TypeError, "ctx"),
        ({"tool_choice": "required"}, TypeError, "tools"),
        ({"tool_choice": "auto", "tools": []}, TypeError, "tools"),
        ({"tools": [search], "tool_choice": "any"}, ValueError, "any"),
        ({"tools": [search], "returns": int}, TypeError, "returns"),
        ({"retries": 1}, TypeError, "retries"),
        ({"returns": int, "retries": 100}, ValueError, "retries"),
        ({"returns": int, "retries": -1}, ValueError, "retries"),
    ],
)
async def test_tools_that_cannot_be_offered_are_an_error_at_once(
    options: Any, error: type[Exception], named: str
) -> None:
    client = MockClient()
    async with client.context() as ctx:
        with pytest.raises(error, match=named):
            ctx.sample("Hello", **options)
    assert client.questions == []


def test_a_tool_with_the_reserved_name_cannot_be_registered() -> None:
    with pytest.raises(ValueError, match="__schema__"):
        Server("s").add_tool(search, name="__schema__")


async def test_a_choice_of_no_tool_may_come_without_tools() -> None:
    client = MockClient(samples=["done"])
    async with client.context() as ctx:
        await ctx.sample("Finish.", tool_choice="none")
    assert (requests_of(client)[-1].tools, requests_of(client)[-1].tool_choice) == (None, ToolChoice(mode="none"))


# capabilities


@pytest.mark.parametrize(
    ("options", "declared", "missing"),
    [
        ({"tools": [search]}, plain(), {"sampling": {"tools": {}}}),
        ({"tool_choice": "none"}, plain(), {"sampling": {"tools": {}}}),
        ({"include_context": "thisServer"}, plain(tools={}), {"sampling": {"context": {}}}),
        ({"include_context": "allServers"}, plain(tools={}), {"sampling": {"context": {}}}),
        ({}, ClientCapabilities(), {"sampling": {}}),
    ],
)
async def test_a_client_is_sent_nothing_that_it_did_not_declare(
    mode: str, options: Any, declared: ClientCapabilities, missing: JsonObject
) -> None:
    client = MockClient(era=mode, capabilities=declared)
    async with client.context() as ctx:
        with pytest.raises(CapabilityError) as caught:
            await ctx.sample("Hello", **options)
    assert caught.value.required == missing
    parts = missing["sampling"]
    assert isinstance(parts, dict)
    lacking = [f"sampling.{part}" for part in parts] or ["sampling"]
    assert unnamed(str(caught.value), *lacking) == []
    assert client.questions == []


async def test_no_context_needs_no_capability() -> None:
    client = MockClient(samples=["hi"], capabilities=plain())
    async with client.context() as ctx:
        await ctx.sample("Hello", include_context="none")
    assert requests_of(client)[-1].include_context == "none"


@pytest.mark.parametrize("era", ["2024-11-05", "2025-03-26", "2025-06-18"])
async def test_a_revision_without_tools_is_sent_none(era: str) -> None:
    client = MockClient(era=era)
    async with client.context() as ctx:
        with pytest.raises(CapabilityError):
            await ctx.sample("Hello", tools=[search])
    assert client.questions == []


# the answer


@pytest.mark.parametrize("stop_reason", ["toolUse", "endTurn", None])
@pytest.mark.parametrize(
    "content",
    [
        use("search", "1", query="x"),
        [use("search", "1", query="x")],
        [TextContent(text="Let me look."), use("search", "1", query="x")],
    ],
    ids=["block", "array", "with-text"],
)
async def test_the_calls_are_read_from_a_block_or_an_array_whatever_the_stop_reason_is(
    mode: str, content: Any, stop_reason: str | None
) -> None:
    said = answer(content).model_copy(update={"stop_reason": stop_reason})
    async with make_context(samples=[said], era=mode) as ctx:
        answered = await ctx.sample("Find x.", tools=[search])
    assert answered.tool_calls == [use("search", "1", query="x")]
    assert answered.content == (content if isinstance(content, list) else [content])
    assert (answered.stop_reason, answered.data) == (stop_reason, None)


@pytest.mark.parametrize("options", [{"tools": [search]}, {"tool_choice": "none"}], ids=["another", "no more"])
async def test_a_plain_sample_passes_on_a_call_of_a_tool_that_was_not_offered(options: Any) -> None:
    async with make_context(samples=[unchecked_tool_use("other", a=1)]) as ctx:
        answered = await ctx.sample("Find x.", **options)
    assert [call.name for call in answered.tool_calls] == ["other"]


async def test_a_model_that_was_offered_no_tools_calls_none(mode: str) -> None:
    async with make_context(samples=[unchecked_tool_use("search")], era=mode) as ctx:
        with pytest.raises(MalformedAnswer, match="search"):
            await ctx.sample("Find x.")
        assert ctx.messages == ()


@pytest.mark.parametrize(
    "blocks",
    [[ToolResultContent(tool_use_id="9", content=[])], [use("search", "9", query="x"), use("search", "9", query="x")]],
    ids=["a result", "an id twice"],
)
async def test_an_answer_that_no_model_can_give_is_malformed(mode: str, blocks: Any) -> None:
    async with make_context(samples=[answer(blocks)], era=mode) as ctx:
        with pytest.raises(MalformedAnswer, match="9"):
            await ctx.sample("Find x.", tools=[search])
        assert ctx.messages == ()


async def test_an_answer_is_one_of_the_assistant_whatever_role_the_client_gives_it(mode: str) -> None:
    said = answer("hi").model_copy(update={"role": "user"})
    async with make_context(samples=[said], era=mode) as ctx:
        await ctx.sample("Hello")
        assert ctx.messages == (message("user", "Hello"), message("assistant", "hi"))


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"inputTokens": 5, "outputTokens": 4}, (5, 4)),
        ({"prompt_tokens": 5}, (5, None)),
        ({"inputTokens": -5, "outputTokens": True}, (None, None)),
        (3, (None, None)),
        (None, (None, None)),
    ],
)
async def test_the_usage_is_what_the_client_reports(usage: Any, expected: tuple[int | None, int | None]) -> None:
    async with make_context(samples=[answer([TextContent(text="h"), TextContent(text="i")], usage)]) as ctx:
        sampled = await ctx.sample("Hello")
    assert sampled.text == "hi"
    assert (sampled.usage.input_tokens, sampled.usage.output_tokens) == expected


# conversations


def returned(*content: str | ImageContent, **more: Any) -> ToolResultContent:
    blocks = [TextContent(text=each) if isinstance(each, str) else each for each in content]
    return ToolResultContent(tool_use_id="1", content=blocks, **more)


RESULT = returned()


@pytest.mark.parametrize(
    ("messages", "named"),
    [
        ([message("user", RESULT)], ["0", "1"]),
        ([message("assistant", use("a", "1"))], ["0", "1"]),
        ([message("assistant", use("a", "1")), message("user", "so?")], ["1", "'1'"]),
        ([message("assistant", use("a", "1")), message("user", RESULT, "so?")], ["1", "'1'"]),
        ([message("assistant", use("a", "1"), use("a", "2")), message("user", RESULT)], ["1", "'2'"]),
        ([message("user", use("a", "1"))], ["0", "'1'"]),
    ],
    ids=["orphan", "open at the end", "text in between", "mixture", "one of two", "role"],
)
async def test_messages_that_break_a_rule_are_not_sent(messages: list[SamplingMessage], named: list[str]) -> None:
    client = MockClient()
    async with client.context() as ctx:
        with pytest.raises(LocalProtocolError) as caught:
            await ctx.sample(messages=messages)
    assert all(name in str(caught.value) for name in named)
    assert client.questions == []


# results


async def test_a_conversation_continues_from_the_results_of_its_tools(mode: str) -> None:
    calls = [tool_use("search", query="a"), tool_use("search", query="b")]
    client = MockClient(samples=[calls, "Both are fine."], era=mode)
    async with client.context() as ctx:
        first = await ctx.sample("How are a and b?", tools=[search])
        ctx.add_tool_results({call.id: f"{call.input['query']} is fine" for call in first.tool_calls})
        assert (await ctx.sample(tools=[search])).text == "Both are fine."
        assert [each.role for each in ctx.messages] == ["user", "assistant", "user", "assistant"]
        assert requests_of(client)[-1].messages == list(ctx.messages[:3])
        results = ctx.messages[2].content
    assert results == [
        ToolResultContent(tool_use_id=f"search_{n}", content=[TextContent(text=f"{name} is fine")])
        for n, name in ((1, "a"), (2, "b"))
    ]


async def test_nothing_is_asked_before_the_calls_have_results() -> None:
    client = MockClient(samples=[[tool_use("search", query="x"), tool_use("search", query="x")], "ok", "ok"])
    async with client.context() as ctx:
        await ctx.sample("Find x.", tools=[search])
        for prompt in ("And y?", None):
            with pytest.raises((LocalProtocolError, TypeError)):
                await ctx.sample(prompt)
        with pytest.raises(LocalProtocolError, match=r"search_1.*search_2"):
            await ctx.sample("And y?")
        assert len(client.questions) == 1
        # Complete messages are another conversation.
        await ctx.sample(messages=[message("user", "And z?")])
        ctx.add_tool_results({"search_1": "x", "search_2": "y"})
        await ctx.sample("And y?")


@pytest.mark.parametrize(
    ("results", "named"),
    [
        ({}, "'1'"),
        ({"1": "a", "2": "b"}, "'2'"),
        ({"2": "b"}, "'1'"),
        ({"1": RESULT.model_copy(update={"tool_use_id": "7"})}, "'7'"),
    ],
)
async def test_each_call_has_exactly_one_result(results: Any, named: str) -> None:
    async with make_context(samples=[use("search", "1", query="x")]) as ctx:
        await ctx.sample("Find x.", tools=[search])
        before = ctx.messages
        with pytest.raises(ValueError, match=named):
            ctx.add_tool_results(results)
        assert ctx.messages == before


async def test_results_without_calls_are_an_error() -> None:
    async with make_context(samples=["no"]) as ctx:
        await ctx.sample("Find x.")
        with pytest.raises(ValueError, match="'1'"):
            ctx.add_tool_results({"1": "a"})


PIXEL = ImageContent(data="AAAA", mime_type="image/png")


@pytest.mark.parametrize(
    ("output", "block"),
    [
        ("text", returned("text")),
        (PIXEL, returned(PIXEL)),
        (["a", PIXEL], returned("a", PIXEL)),
        ({"a": 1}, returned('{"a":1}')),
        (None, RESULT),
        (RESULT, RESULT),
        (ToolError("no city"), returned("no city", is_error=True)),
        (CallToolResult(content=[PIXEL], structured_content={"a": 1}), returned(PIXEL, structured_content={"a": 1})),
        (CallToolResult(content=[], is_error=True), returned(is_error=True)),
    ],
)
async def test_a_result_may_be_anything_that_a_tool_returns(output: Any, block: ToolResultContent) -> None:
    async with make_context(samples=[use("search", "1", query="x")]) as ctx:
        await ctx.sample("Find x.", tools=[search])
        ctx.add_tool_results({"1": output})
        assert ctx.messages[-1] == message("user", block)


async def test_a_sibling_that_samples_meanwhile_does_not_break_the_conversation() -> None:
    """Two tasks of one body: the answer of the second comes between the calls and the results of the first."""
    client = MockClient(samples=lambda params: use("search", "1", query="x") if params.tools else "fine")
    async with client.context() as ctx:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ctx.sample("Find x.", tools=[search]))
            nursery.start_soon(lambda: ctx.sample("How are you?"))
        ctx.add_tool_results({"1": "x"})
        await ctx.sample("And now?")
        assert len(ctx.messages) == 7


# sample_tools


async def test_an_answer_without_a_call_is_asked_again_with_the_reason(mode: str) -> None:
    client = MockClient(
        samples=["I would search.", unchecked_tool_use("guess"), tool_use("search", query="x")], era=mode
    )
    async with client.context() as ctx:
        answered = await ctx.sample_tools("Find x.", [search])
        assert answered.tool_calls == [use("search", "search", query="x")]
        # The clean pair only: neither the failed attempts nor what was added to the prompt.
        assert ctx.messages == (
            message("user", "Find x."),
            SamplingMessage(role="assistant", content=answered.content[0]),
        )
    first, second, third = requests_of(client)
    assert first.messages == [message("user", "Find x.")]
    assert first.tool_choice == ToolChoice(mode="required")
    (asked,) = second.messages
    assert asked.content[0] == TextContent(text="Find x.")
    assert "search" in client.questions[1].message
    assert "guess" in client.questions[2].message
    assert len(third.messages[0].content) == 2


async def test_a_model_that_may_answer_without_a_call_does() -> None:
    async with make_context(samples=["I know x."]) as ctx:
        assert (await ctx.sample_tools("Find x.", [search], tool_choice="auto")).text == "I know x."


async def test_attempts_without_a_call_end_in_an_error_with_each_of_them() -> None:
    async with make_context(samples=["one", "two"]) as ctx:
        with pytest.raises(SampleInvalid) as caught:
            await ctx.sample_tools("Find x.", [search], retries=1)
        assert ctx.messages == ()
    error = caught.value
    assert error.helper == "sample_tools"
    assert [attempt.text for attempt in error.attempts] == ["one", "two"]
    assert all("search" in attempt.reason for attempt in error.attempts)
    assert error.last_result.text == "two"


async def test_the_reason_follows_results_in_a_separate_message() -> None:
    """Beside results nothing may stand (L-SMP-3b)."""
    client = MockClient(samples=["no", tool_use("search", query="x")])
    conversation = [message("assistant", use("search", "1")), message("user", RESULT)]
    async with client.context() as ctx:
        await ctx.sample_tools(None, [search], messages=conversation)
    assert requests_of(client)[-1].messages[:-1] == conversation
    assert requests_of(client)[-1].messages[-1].role == "user"
