"""Turning the answers of a script into the results of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from itertools import count
from typing import Final, cast

from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from ..sampling import SCHEMA_TOOL
from ..types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    JsonObject,
    SamplingContentBlock,
    TextContent,
    ToolUseContent,
)

BLOCKS: Final = (TextContent, ImageContent, AudioContent, ToolUseContent)


class UncheckedToolUse(ToolUseContent):
    """A tool call that need not fit the tools that were offered."""


def tool_use(name: str, /, **arguments: object) -> ToolUseContent:
    """Return the block with which a model calls a tool, for a script: `samples=[tool_use("search", query="fado")]`.

    Its id is the name and, in a list of several, a number: `search`, or `search_1` and `search_2`.

    Raises:
        TypeError: an argument is not JSON.
    """
    return ToolUseContent(id=name, name=name, input=to_input("tool_use", name, arguments))


def unchecked_tool_use(name: str, /, **arguments: object) -> ToolUseContent:
    """Return what `tool_use` does, for a call that the tool under test has to reject.

    `MockClient` sends it even if no such tool was offered, or if the arguments do not fit the tool's schema.

    Raises:
        TypeError: an argument is not JSON.
    """
    return UncheckedToolUse(id=name, name=name, input=to_input("unchecked_tool_use", name, arguments))


def to_input(function: str, name: str, arguments: Mapping[str, object]) -> JsonObject:
    """Return arguments as JSON. Raises `TypeError`, naming the function and the tool, if one of them has no JSON."""
    try:
        return cast("JsonObject", to_jsonable_python(arguments, by_alias=True))
    except ValueError as error:
        raise TypeError(f"{function}({name!r}): {error}") from None


def sample_result(name: str, answer: object, request: CreateMessageRequestParams, *, model: str) -> CreateMessageResult:
    """Return the answer to a sampling request: a text, blocks or data become a whole result.

    Args:
        name: names the answer in errors.
        model: the name of the model that the script stands for.

    Raises:
        TypeError: it is none of these, nor a `CreateMessageResult`, or the data is not JSON.
    """
    if isinstance(answer, CreateMessageResult):
        return answer
    blocks: list[SamplingContentBlock]
    match answer:
        case str():
            blocks = [TextContent(text=answer)]
        case TextContent() | ImageContent() | AudioContent() | ToolUseContent():
            blocks = [answer]
        case [*items] if items and all(isinstance(item, BLOCKS) for item in items):
            blocks = numbered(cast("list[SamplingContentBlock]", items))
        case _ if isinstance(answer, Mapping | BaseModel) or is_dataclass(answer):
            blocks = [data_block(name, answer, request)]
        # Without the tool it may be a mistake in the script: a text was asked for.
        case list() | int() | float() if offers_schema(request):
            blocks = [data_block(name, {"result": answer}, request)]
        case _:
            raise TypeError(
                f"{name}: a sample is answered with a string, blocks such as tool_use(...), data, or a "
                f"CreateMessageResult, not {answer!r:.200}"
            )
    uses = any(isinstance(block, ToolUseContent) for block in blocks)
    content = blocks[0] if len(blocks) == 1 else blocks
    return CreateMessageResult(
        role="assistant", content=content, model=model, stop_reason="toolUse" if uses else "endTurn"
    )


def numbered(blocks: list[SamplingContentBlock]) -> list[SamplingContentBlock]:
    """Return blocks in which each tool use that has its name for an id has a number too."""
    numbers = count(1)
    return [
        block.model_copy(update={"id": f"{block.name}_{next(numbers)}"})
        if isinstance(block, ToolUseContent) and block.id == block.name
        else block
        for block in blocks
    ]


def data_block(name: str, data: object, request: CreateMessageRequestParams) -> SamplingContentBlock:
    """Return the answer to a question for structured data: in the form that the question asks for."""
    try:
        value = to_jsonable_python(data, by_alias=True)
    except ValueError as error:
        raise TypeError(f"{name} cannot be sent: {error}") from None
    if offers_schema(request):
        return ToolUseContent(id=SCHEMA_TOOL, name=SCHEMA_TOOL, input=value)
    return TextContent(text=to_json(value).decode())


def offers_schema(request: CreateMessageRequestParams) -> bool:
    """Return whether a sampling request asks for structured data by its tool."""
    return any(tool.name == SCHEMA_TOOL for tool in request.tools or ())
