"""Turning the answers of a script into the results that a client sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from itertools import count
from typing import Final, cast

from pydantic import BaseModel
from pydantic_core import to_json, to_jsonable_python

from ...client import accept
from ...protocol.schema.json_schema import Schema
from ...sampling import SCHEMA_TOOL
from ...types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    ImageContent,
    JsonObject,
    JsonValue,
    Model,
    RequestedSchema,
    SamplingContentBlock,
    TextContent,
    ToolUseContent,
)

MODEL = "mock"
"""The name of the model that a script stands for."""

BLOCKS: Final = (TextContent, ImageContent, AudioContent, ToolUseContent)


def elicit_result(name: str, answer: object, params: Model) -> ElicitResult:
    """Return the answer to a form or a URL.

    Args:
        name: names the answer in errors.

    Raises:
        AssertionError: it does not fit. An `ElicitResult` is sent as it is: so a test can send what a faulty client would.
    """
    if isinstance(answer, ElicitResult):
        return answer
    if not isinstance(params, ElicitRequestFormParams):
        assert isinstance(params, ElicitRequestURLParams)
        raise AssertionError(
            f"{name}: a page is answered with accept(), decline() or dismiss(), not with {answer!r:.200}"
        )
    form = params.requested_schema
    content = form_content(name, answer, form)
    unknown = [field for field in content if field not in form.properties]
    problem = Schema.compile(form.wire(), "requestedSchema").check(content)
    if unknown:
        problem = f"the form has no field {', '.join(unknown)}; it has {', '.join(form.properties) or 'none'}"
    if problem is not None:
        raise AssertionError(f"{name} does not fit the form {params.message!r}: {problem}; it is {content}")
    return accept(**content)


def form_content(name: str, answer: object, form: RequestedSchema) -> JsonObject:
    """Return what a form is filled in with: a model or a mapping as it is, any other value as the only field.

    Raises:
        AssertionError: the form has several fields, or the value is no JSON.
    """
    try:
        value = cast("JsonValue", to_jsonable_python(answer, by_alias=True))
    except ValueError as error:
        raise AssertionError(f"{name} cannot be sent: {error}") from None
    if isinstance(value, Mapping):
        return dict(value)
    if not form.properties:
        raise AssertionError(
            f"{name} is one value, {value!r:.200}, and the form has no fields: use {{}}, an empty dict"
        )
    if len(form.properties) != 1:
        fields = ", ".join(form.properties)
        raise AssertionError(f"{name} is one value, {value!r:.200}, and the form has the fields {fields}: use a dict")
    return {next(iter(form.properties)): value}


def sample_result(name: str, answer: object, params: Model) -> CreateMessageResult:
    """Return the answer to a sampling request: a text, blocks or data become a whole result.

    Raises:
        AssertionError: it is none of these, nor a `CreateMessageResult`, or the data is no JSON.
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
            blocks = [data_block(name, answer, params)]
        # Without the tool it may be a mistake in the script: a text was asked for.
        case list() | int() | float() if offers_schema(params):
            blocks = [data_block(name, {"result": answer}, params)]
        case _:
            raise AssertionError(
                f"{name}: a sample is answered with a string, blocks such as tool_use(...), data, or a "
                f"CreateMessageResult, not {answer!r:.200}"
            )
    uses = any(isinstance(block, ToolUseContent) for block in blocks)
    content = blocks[0] if len(blocks) == 1 else blocks
    return CreateMessageResult(
        role="assistant", content=content, model=MODEL, stop_reason="toolUse" if uses else "endTurn"
    )


def tool_use(name: str, /, **arguments: object) -> ToolUseContent:
    """Return the block with which a model calls a tool, for a script: `samples=[tool_use("search", query="fado")]`.

    Its id is the name and, in a list of several, a number: `search`, or `search_1` and `search_2`.

    Raises:
        TypeError: an argument is no JSON.
    """
    try:
        given = cast("JsonObject", to_jsonable_python(arguments, by_alias=True))
    except ValueError as error:
        raise TypeError(f"tool_use({name!r}): {error}") from None
    return ToolUseContent(id=name, name=name, input=given)


def numbered(blocks: list[SamplingContentBlock]) -> list[SamplingContentBlock]:
    """Return blocks in which each tool use that has its name for an id has a number too."""
    numbers = count(1)
    return [
        block.model_copy(update={"id": f"{block.name}_{next(numbers)}"})
        if isinstance(block, ToolUseContent) and block.id == block.name
        else block
        for block in blocks
    ]


def data_block(name: str, data: object, params: Model) -> SamplingContentBlock:
    """Return the answer to a question for structured data: in the form that the question asks for."""
    try:
        value = to_jsonable_python(data, by_alias=True)
    except ValueError as error:
        raise AssertionError(f"{name} cannot be sent: {error}") from None
    if offers_schema(params):
        return ToolUseContent(id=SCHEMA_TOOL, name=SCHEMA_TOOL, input=value)
    return TextContent(text=to_json(value).decode())


def offers_schema(params: Model) -> bool:
    """Return whether a sampling request asks for structured data by its tool."""
    tools = params.tools if isinstance(params, CreateMessageRequestParams) else None
    return any(tool.name == SCHEMA_TOOL for tool in tools or ())
