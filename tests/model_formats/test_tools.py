"""Tools, calls and results for the APIs of models, there and back; checked against the types of their client libraries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from anthropic.types import Message, MessageParam, TextBlock, ToolParam, ToolUseBlock, Usage
from naming import naming
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionFunctionToolParam,
    ChatCompletionMessage,
    ChatCompletionMessageFunctionToolCall,
    ChatCompletionMessageParam,
)
from openai.types.chat.chat_completion import Choice
from openai.types.chat.chat_completion_message_function_tool_call import Function
from pydantic import TypeAdapter

from trio_mcp.model_formats import (
    calls_from_anthropic,
    calls_from_openai,
    results_to_anthropic,
    results_to_openai,
    tools_from_anthropic,
    tools_from_openai,
    tools_to_anthropic,
    tools_to_openai,
)
from trio_mcp.types import ImageContent, TextContent, Tool, ToolResultContent, ToolUseContent

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    Tool(name="weather_forecast", description="Tomorrow's weather.", input_schema=SCHEMA, title="Weather"),
    Tool(name="now", input_schema={"type": "object"}),
]
SEEN = [
    Tool(name="weather_forecast", description="Tomorrow's weather.", input_schema=SCHEMA),
    Tool(name="now", input_schema={"type": "object"}),
]
"""What an API has of them."""

CALLS = [
    ToolUseContent(id="1", name="weather_forecast", input={"city": "Lisbon"}),
    ToolUseContent(id="2", name="now", input={}),
]
RESULTS = [
    ToolResultContent(tool_use_id="1", content=[TextContent(text="rain")]),
    ToolResultContent(tool_use_id="2", content=[TextContent(text="late")], is_error=True),
]


def test_tools_are_written_as_the_messages_api_takes_them() -> None:
    written = tools_to_anthropic(TOOLS)
    assert written == [
        {"name": "weather_forecast", "description": "Tomorrow's weather.", "input_schema": SCHEMA},
        {"name": "now", "input_schema": {"type": "object"}},
    ]
    TypeAdapter(list[ToolParam]).validate_python(written)
    assert tools_from_anthropic(cast("Any", written)) == SEEN


def test_tools_are_written_as_chat_completions_take_them() -> None:
    written = tools_to_openai(TOOLS)
    described = {"name": "weather_forecast", "description": "Tomorrow's weather.", "parameters": SCHEMA}
    assert written == [
        {"type": "function", "function": described},
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}},
    ]
    TypeAdapter(list[ChatCompletionFunctionToolParam]).validate_python(written)
    assert tools_from_openai(cast("Any", written)) == SEEN


def test_what_is_about_costs_or_strictness_is_left_out() -> None:
    (custom,) = tools_from_anthropic(
        [{"type": "custom", "name": "a", "input_schema": {}, "cache_control": {"type": "x"}}]
    )
    assert custom.name == "a"
    (strict,) = tools_from_openai([{"type": "function", "function": {"name": "a", "strict": True}}])
    assert strict.input_schema == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("read", "tool", "names"),
    [
        (
            tools_from_anthropic,
            {"type": "web_search_20250305", "name": "web_search"},
            ["tools[1]", "web_search_20250305"],
        ),
        (tools_from_anthropic, {"name": 7, "input_schema": {}}, ["tools[1]", "name"]),
        (tools_from_anthropic, {"name": "a", "input_schema": []}, ["tools[1].input_schema"]),
        (tools_from_anthropic, {"name": "a", "input_schema": {}, "other": 1}, ["tools[1]", "other"]),
        (tools_from_openai, {"type": "custom", "custom": {"name": "a"}}, ["tools[1]", "custom"]),
        (tools_from_openai, {"type": "function"}, ["tools[1].function"]),
        (
            tools_from_openai,
            {"type": "function", "function": {"name": "a", "other": 1}},
            ["tools[1].function", "other"],
        ),
        (tools_from_openai, 7, ["tools[1]"]),
    ],
)
def test_a_tool_without_a_counterpart_is_an_error_that_names_its_place(read: Any, tool: Any, names: list[str]) -> None:
    good = tools_to_anthropic(TOOLS)[0] if read is tools_from_anthropic else tools_to_openai(TOOLS)[0]
    with pytest.raises(ValueError, match=naming(*names)):
        read([good, tool])


def anthropic_answer() -> Message:
    uses: Sequence[Any] = [
        ToolUseBlock(type="tool_use", id=call.id, name=call.name, input=call.input) for call in CALLS
    ]
    content = [TextBlock(type="text", text="Let me see."), *uses]
    usage = Usage(input_tokens=1, output_tokens=1)
    return Message(id="m", type="message", role="assistant", model="x", content=content, usage=usage)


def openai_answer() -> ChatCompletion:
    arguments = ['{"city": "Lisbon"}', "{}"]
    calls: list[Any] = [
        ChatCompletionMessageFunctionToolCall(
            id=call.id, type="function", function=Function(name=call.name, arguments=text)
        )
        for call, text in zip(CALLS, arguments, strict=True)
    ]
    message = ChatCompletionMessage(role="assistant", content=None, tool_calls=calls)
    choice = Choice(finish_reason="tool_calls", index=0, message=message)
    return ChatCompletion(id="c", choices=[choice], created=0, model="x", object="chat.completion")


def test_the_calls_of_an_answer_are_read() -> None:
    answer = anthropic_answer()
    assert calls_from_anthropic(answer) == calls_from_anthropic(answer.to_dict()) == CALLS
    message = openai_answer().choices[0].message
    assert calls_from_openai(message) == calls_from_openai(message.to_dict()) == CALLS


def test_an_answer_without_calls_has_none() -> None:
    assert calls_from_anthropic({"role": "assistant", "content": "Hello"}) == []
    assert calls_from_openai({"role": "assistant", "content": "Hello"}) == []


@pytest.mark.parametrize(
    ("read", "answer", "names"),
    [
        (
            calls_from_anthropic,
            {"content": [{"type": "tool_use", "id": "1", "name": "a", "input": "x"}]},
            ["content[0]"],
        ),
        (calls_from_anthropic, {"content": [{"type": "tool_use", "name": "a", "input": {}}]}, ["content[0]", "id"]),
        (calls_from_anthropic, 7, ["answer"]),
        (calls_from_openai, {"choices": []}, ["answer", "completion"]),
        (
            calls_from_openai,
            {"tool_calls": [{"id": "1", "function": {"name": "a", "arguments": "no"}}]},
            ["answer.tool_calls[0]"],
        ),
        (calls_from_openai, {"tool_calls": [{"id": "1", "type": "custom"}]}, ["answer.tool_calls[0]", "custom"]),
    ],
)
def test_a_call_that_cannot_be_read_is_an_error_that_names_its_place(read: Any, answer: Any, names: list[str]) -> None:
    with pytest.raises(ValueError, match=naming(*names)):
        read(answer)


def test_results_are_one_message_of_the_user_for_the_messages_api() -> None:
    written = results_to_anthropic(RESULTS)
    assert written["role"] == "user"
    assert [block["tool_use_id"] for block in cast("Any", written["content"])] == ["1", "2"]
    TypeAdapter(list[MessageParam]).validate_python([written])


def test_results_are_a_message_each_for_chat_completions() -> None:
    picture = ToolResultContent(tool_use_id="3", content=[ImageContent(data="AAAA", mime_type="image/png")])
    written = results_to_openai([*RESULTS, picture])
    assert written[:2] == [
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
        {"role": "tool", "tool_call_id": "2", "content": "Error: late"},
    ]
    assert [message["role"] for message in written] == ["tool", "tool", "tool", "user"]
    TypeAdapter(list[ChatCompletionMessageParam]).validate_python(written)


@pytest.mark.parametrize("write", [results_to_anthropic, results_to_openai])
def test_no_results_are_no_message(write: Any) -> None:
    with pytest.raises(ValueError, match="results"):
        write([])
