"""Tools, the calls of models and their results as the APIs of models write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from ..types import SamplingMessage, Tool, ToolResultContent, ToolUseContent
from .blocks import ModelMessage, as_blocks, as_object, cannot, only, tool_from
from .chat_completions import read_tool_calls, to_openai
from .messages_api import read_tool_use, to_anthropic

if TYPE_CHECKING:
    from .api_types import (
        ChatCompletionFunctionToolParam,
        ChatCompletionMessageParam,
        FunctionDefinition,
        MessageParam,
        ToolParam,
    )

# tools


def tools_to_anthropic(tools: Iterable[Tool]) -> list[ToolParam]:
    """Return the tools as Anthropic's messages API takes them (`tools=`).

    Names stay as they are: the API rejects those with other characters than letters, digits, `_` and `-`, and with more than 64.
    `list_model_tools` has tools whose names it takes.
    """
    written: list[ToolParam] = []
    for tool in tools:
        each: ToolParam = {"name": tool.name, "input_schema": cast("dict[str, object]", tool.input_schema)}
        if tool.description is not None:
            each["description"] = tool.description
        written.append(each)
    return written


def tools_to_openai(tools: Iterable[Tool]) -> list[ChatCompletionFunctionToolParam]:
    """Return the tools as OpenAI's chat completions take them (`tools=`). For their names see `tools_to_anthropic`."""
    written: list[ChatCompletionFunctionToolParam] = []
    for tool in tools:
        function: FunctionDefinition = {"name": tool.name, "parameters": cast("dict[str, object]", tool.input_schema)}
        if tool.description is not None:
            function["description"] = tool.description
        written.append({"type": "function", "function": function})
    return written


def tools_from_anthropic(tools: Iterable[ModelMessage]) -> list[Tool]:
    """Return tools of Anthropic's messages API as MCP has them. `cache_control` is left out: it is about costs.

    Raises:
        ValueError: a tool is one of Anthropic's own, such as a web search, or has a member without a counterpart.
    """
    read: list[Tool] = []
    for index, each in enumerate(tools):
        place = f"tools[{index}]"
        tool = as_object(each, place)
        if tool.get("type") not in (None, "custom"):
            raise cannot(place, f"MCP has no counterpart of the tool {tool.get('type')!r}")
        only(tool, place, "type", "name", "description", "input_schema", "cache_control")
        read.append(tool_from(tool, "input_schema", place))
    return read


def tools_from_openai(tools: Iterable[ModelMessage]) -> list[Tool]:
    """Return tools of OpenAI's chat completions as MCP has them. `strict` is left out.

    Raises:
        ValueError: a tool is not a function, or has a member without a counterpart.
    """
    read: list[Tool] = []
    for index, each in enumerate(tools):
        place = f"tools[{index}]"
        tool = as_object(each, place)
        if tool.get("type") != "function":
            raise cannot(place, f"MCP has no counterpart of the tool {tool.get('type')!r}")
        only(tool, place, "type", "function")
        function = as_object(tool.get("function"), f"{place}.function")
        only(function, f"{place}.function", "name", "description", "parameters", "strict")
        read.append(tool_from(function, "parameters", f"{place}.function"))
    return read


# calls


def calls_from_anthropic(message: ModelMessage) -> list[ToolUseContent]:
    """Return the tool calls of an answer of Anthropic's messages API; its other blocks are left out.

    Args:
        message: the answer, a dict or a value of the library `anthropic`.

    Raises:
        ValueError: a call has no id or no name, or its input is not a JSON object.
    """
    answer = as_object(message, "the answer")
    blocks = as_blocks(answer.get("content"), "content")
    return [
        read_tool_use(block, f"content[{index}]")
        for index, block in enumerate(blocks)
        if block.get("type") == "tool_use"
    ]


def calls_from_openai(message: ModelMessage) -> list[ToolUseContent]:
    """Return the tool calls of a message of the assistant of OpenAI's chat completions.

    Args:
        message: that of a choice of the completion, a dict or a value of the library `openai`.

    Raises:
        ValueError: it is a whole completion, a call is not a function, or its arguments are not a JSON object.
    """
    answer = as_object(message, "the answer")
    if "choices" in answer:
        raise cannot("the answer", "is a completion; its message is `completion.choices[0].message`")
    return read_tool_calls(answer, "the answer")


# results


def results_to_anthropic(results: Sequence[ToolResultContent]) -> MessageParam:
    """Return the message with these results, as Anthropic's messages API takes it after the answer with the calls.

    Raises:
        ValueError: there is no result, or a block has no counterpart; see `to_anthropic`.
    """
    return cast("MessageParam", to_anthropic([_message(results)])[0])


def results_to_openai(results: Sequence[ToolResultContent]) -> list[ChatCompletionMessageParam]:
    """Return the messages with these results, as OpenAI's chat completions take them after the answer with the calls.

    Raises:
        ValueError: there is no result, or a block has no counterpart; see `to_openai`.
    """
    return cast("list[ChatCompletionMessageParam]", to_openai([_message(results)]))


def _message(results: Sequence[ToolResultContent]) -> SamplingMessage:
    if not results:
        raise ValueError("there are no results to write")
    return SamplingMessage(role="user", content=[*results])
