"""What both formats share: how blocks are found, what a tool result shows to a model, and how members are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, TypeAlias, cast, runtime_checkable

from pydantic_core import from_json, to_json

from ..types import (
    ContentBlock,
    JsonObject,
    JsonValue,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    Tool,
    ToolResultContent,
    ToolUseContent,
)

EMPTY_SCHEMA: Final[JsonObject] = {"type": "object", "properties": {}}
BASE64: Final = ";base64,"


@runtime_checkable
class Dumpable(Protocol):
    """A value of the client libraries `openai` and `anthropic`."""

    def to_dict(self) -> dict[str, object]:
        """Return it as JSON."""
        ...


ModelMessage: TypeAlias = Mapping[str, object] | Dumpable
"""A message of a model's API: a dict, or a value of its client library."""


def cannot(place: str, why: str) -> ValueError:
    """Return the error for a block or member at `place` that has no counterpart."""
    return ValueError(f"{place}: {why}")


# MCP


def blocks_of(message: SamplingMessage) -> Sequence[SamplingContentBlock]:
    """Return the blocks of a message, also of one whose content is a single block."""
    return message.content if isinstance(message.content, list) else [message.content]


def blocks_to_show(result: ToolResultContent) -> list[ContentBlock]:
    """Return the content of a tool result, with the structured content as JSON text unless a block already is that text."""
    structured = result.structured_content
    if structured is None or any(_is_json_of(block, structured) for block in result.content):
        return result.content
    return [*result.content, TextContent(text=json_text(structured))]


def _is_json_of(block: ContentBlock, value: JsonValue) -> bool:
    if not isinstance(block, TextContent):
        return False
    try:
        return bool(from_json(block.text) == value)
    except ValueError:
        return False


def json_text(value: JsonValue) -> str:
    """Return compact JSON."""
    return to_json(value, inf_nan_mode="constants").decode()


# the members of foreign messages


def as_object(value: object, place: str) -> JsonObject:
    """Return a JSON object, also from a value of a client library.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, Dumpable):
        value = value.to_dict()
    if not isinstance(value, Mapping):
        raise cannot(place, "is not an object")
    return cast("JsonObject", value if isinstance(value, dict) else dict(value))


def as_blocks(value: object, place: str) -> list[JsonObject]:
    """Return the blocks of a content: none for null and "", one for a text.

    Raises:
        ValueError: it is no such content.
    """
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list | tuple):
        raise cannot(place, "is neither a text nor a list of blocks")
    return [as_object(block, f"{place}[{index}]") for index, block in enumerate(value)]


def string(source: JsonObject, name: str, place: str) -> str:
    """Return the member `name`.

    Raises:
        ValueError: it is not a string.
    """
    value = source.get(name)
    if not isinstance(value, str):
        raise cannot(place, f"{name!r} is not a string")
    return value


def only(source: JsonObject, place: str, *known: str) -> None:
    """Raise for any further member with a value: it would be lost.

    Raises:
        ValueError: there is one.
    """
    for name, value in source.items():
        if name not in known and value is not None and value not in ("", [], {}):
            raise cannot(place, f"MCP has no counterpart of {name!r}")


def tool_use(id: str, name: str, given: JsonValue, place: str) -> ToolUseContent:
    """Return a tool call.

    Raises:
        ValueError: the arguments are not a JSON object.
    """
    if not isinstance(given, dict):
        raise cannot(place, "the arguments of the tool call are not a JSON object")
    return ToolUseContent(id=id, name=name, input=given)


def function_call(call: JsonObject, id: str, function: JsonObject, place: str) -> ToolUseContent:
    """Return a tool call as both APIs of OpenAI write it: a function with its arguments as the text of a JSON object.

    Args:
        id: the name of the member of `call` with its id.
        function: the object with the name and the arguments.

    Raises:
        ValueError: a member is not text, or the arguments are not a JSON object.
    """
    # Some servers of local models write nothing for a call without arguments.
    arguments = string(function, "arguments", place) or "{}"
    try:
        given = from_json(arguments, allow_inf_nan=False)
    except ValueError as error:
        raise cannot(place, "the arguments of the tool call are not a JSON object") from error
    return tool_use(string(call, id, place), string(function, "name", place), given, place)


def data_url(mime_type: str, data: str) -> str:
    """Return the URL that contains some data; `data` is in base64."""
    return f"data:{mime_type}{BASE64}{data}"


def tool_from(source: JsonObject, schema: str, place: str) -> Tool:
    """Return a tool.

    Args:
        schema: the name of the member with the schema of its arguments; without one it takes none.

    Raises:
        ValueError: its name or its description is not text, or the schema is not an object.
    """
    given = source.get(schema)
    parameters = EMPTY_SCHEMA if given is None else as_object(given, f"{place}.{schema}")
    described = source.get("description")
    description = string(source, "description", place) if described is not None else None
    return Tool(name=string(source, "name", place), description=description, input_schema=parameters)
