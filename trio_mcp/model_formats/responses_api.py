"""Tools, calls and results of OpenAI's Responses API, whose conversations are items and not messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

from ..types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    JsonObject,
    JsonValue,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
)
from .blocks import (
    ModelMessage,
    as_blocks,
    as_object,
    blocks_to_show,
    cannot,
    data_url,
    function_call,
    json_text,
    only,
    tool_from,
)

if TYPE_CHECKING:
    from .api_types import FunctionToolParam, ResponseInputItemParam

OF_CALLERS: Final = ("allowed_callers", "defer_loading", "output_schema", "strict", "async")
"""Members of a tool that are about how the API calls it."""


def tools_to_openai_responses(tools: Iterable[Tool]) -> list[FunctionToolParam]:
    """Return the tools as OpenAI's Responses API takes them (`tools=`). For their names see `tools_to_anthropic`.

    They are not `strict`, which the API makes them by default: it would reject schemas with optional arguments.
    """
    written: list[FunctionToolParam] = []
    for tool in tools:
        each: FunctionToolParam = {
            "type": "function",
            "name": tool.name,
            "parameters": cast("dict[str, object]", tool.input_schema),
            "strict": False,
        }
        if tool.description is not None:
            each["description"] = tool.description
        written.append(each)
    return written


def tools_from_openai_responses(tools: Iterable[ModelMessage]) -> list[Tool]:
    """Return tools of OpenAI's Responses API as MCP has them. What is about how the API calls them is left out, as `strict`.

    Raises:
        ValueError: a tool is not a function, such as a web search, or has a member without a counterpart.
    """
    read: list[Tool] = []
    for index, each in enumerate(tools):
        place = f"tools[{index}]"
        tool = as_object(each, place)
        if tool.get("type") != "function":
            raise cannot(place, f"MCP has no counterpart of the tool {tool.get('type')!r}")
        only(tool, place, "type", "name", "description", "parameters", *OF_CALLERS)
        read.append(tool_from(tool, "parameters", place))
    return read


def calls_from_openai_responses(response: ModelMessage) -> list[ToolUseContent]:
    """Return the calls of functions in a response of OpenAI's Responses API; its other items are left out.

    Args:
        response: a `Response` of the library `openai`, or the same as a dict.

    Raises:
        ValueError: a call has no id or no name, or its arguments are not a JSON object.
    """
    items = output_items(response)
    placed = [(f"output[{index}]", item) for index, item in enumerate(items)]
    return [
        function_call(item, "call_id", item, place) for place, item in placed if item.get("type") == "function_call"
    ]


def output_items(response: ModelMessage) -> list[JsonObject]:
    """Return the items of a response. Raises `ValueError` if it has none."""
    answer = as_object(response, "the response")
    if "output" not in answer:
        raise cannot("the response", "has no member 'output'")
    return as_blocks(answer["output"], "output")


def results_to_openai_responses(results: Sequence[ToolResultContent]) -> list[ResponseInputItemParam]:
    """Return the items with these results, as OpenAI's Responses API takes them after those of the response with the calls.

    An error begins with "Error: ". Structured content is JSON unless a block already is, a text resource is its text, and a link
    is its JSON.

    Raises:
        ValueError: there is no result, or a block has no counterpart: audio.
    """
    if not results:
        raise ValueError("there are no results to write")
    items: list[JsonObject] = [
        {"type": "function_call_output", "call_id": result.tool_use_id, "output": _output(result, f"results[{index}]")}
        for index, result in enumerate(results)
    ]
    return cast("list[ResponseInputItemParam]", items)


def _output(result: ToolResultContent, place: str) -> JsonValue:
    """Return a text where there is nothing else."""
    blocks = blocks_to_show(result)
    parts = [_part(block, f"{place}.content[{position}]") for position, block in enumerate(blocks)]
    if result.is_error:
        first = parts[0].get("text") if parts else None
        if isinstance(first, str):
            parts[0] = _text_part(f"Error: {first}")
        else:
            parts.insert(0, _text_part("Error"))
    if len(parts) > 1 or (parts and "text" not in parts[0]):
        return list[JsonValue](parts)
    return parts[0]["text"] if parts else ""


def _part(block: ContentBlock, place: str) -> JsonObject:
    match block:
        case TextContent():
            return _text_part(block.text)
        case ImageContent():
            return _image_part(block.data, block.mime_type)
        case ResourceLink() | UnknownContent():
            return _text_part(json_text(block.wire()))
        case EmbeddedResource(resource=BlobResourceContents() as resource):
            mime_type = (resource.mime_type or "application/octet-stream").lower()
            if mime_type.startswith("image/"):
                return _image_part(resource.blob, mime_type)
            return {"type": "input_file", "filename": resource.uri, "file_data": data_url(mime_type, resource.blob)}
        case EmbeddedResource(resource=TextResourceContents() as written):
            return _text_part(written.text)
        case AudioContent() | EmbeddedResource():
            raise cannot(place, "the Responses API takes no audio as the result of a function")


def _text_part(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _image_part(data: str, mime_type: str) -> JsonObject:
    return {"type": "input_image", "detail": "auto", "image_url": data_url(mime_type, data)}
