"""Converting the value that a tool returns to the result that its caller gets.

    return annotation                  output schema          result
    str, None                          none                   text; no content for None
    none at all                        none                   text, or JSON as text
    content blocks, Image, mixed       none                   blocks
    a model, dataclass, dict           of the value           text and structured content
    int, list[int], a union            of {"result": value}   text of the value alone, and structured content
    list, list[Any], Any               none                   as the line above; blocks if it holds some

The structure is checked before it is sent, because a client may check it too, and would blame the server (L-TOOL-5s).
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import partial
from typing import Annotated, TypeVar, cast, get_args, get_origin, is_typeddict

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, RootModel, TypeAdapter, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticSerializationError, SchemaError, core_schema
from typing_extensions import TypeAliasType

from ... import types as mcp_types
from ...protocol.schema.json_schema import Schema
from ...types import CallToolResult, ContentBlock, JsonObject, JsonValue, Result, TextContent
from .content import (
    USE_MEDIA,
    Block,
    as_json,
    content_of,
    json_text,
    reading_files,
    sound_block,
    take_apart,
)
from .media import Media
from .return_errors import NOT_JSON, ReturnError, check_not_coroutine
from .schema_checks import checked, error_summary
from .schemas import PlainSchema, UnknownReference, inlined, is_open
from .signature import unknown_pattern, unsupported_type
from .text_results import MISMATCH, ReturnSpec, is_interim

T = TypeVar("T")

ASK_INSTEAD = "a tool asks with ctx.elicit, ctx.sample or ctx.roots; it does not return an InputRequiredResult"
STRUCTURE_MISMATCH = "the structured content does not match what the tool declares"


class ToolResult(CallToolResult):
    """A tool may return one of these to control everything: content, structured content, `is_error`, `_meta`.

    Without `content`, the structured content is also sent as text.
    """

    content: list[ContentBlock] = Field(default_factory=list[ContentBlock])


class ReturnModel(RootModel[T]):
    """Validates and serializes the value of a return annotation."""

    # "constants" writes NaN as NaN, so that `dumps` rejects it. The default would send null instead, without an error.
    model_config = ConfigDict(ser_json_inf_nan="constants", arbitrary_types_allowed=True, defer_build=True)


class ReturnSchema(PlainSchema):
    """Generates output schemas. A structure cannot hold content blocks: they would be base64 in JSON in text.

    Raises:
        TypeError: it holds one.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        if issubclass(schema["cls"], Block):
            raise TypeError(BLOCK_IN_STRUCTURE.format(schema["cls"].__name__))
        return super().model_schema(schema)

    def is_instance_schema(self, schema: core_schema.IsInstanceSchema) -> JsonSchemaValue:
        if issubclass(schema["cls"], Media):
            raise TypeError(BLOCK_IN_STRUCTURE.format(schema["cls"].__name__))
        return super().is_instance_schema(schema)


BLOCK_IN_STRUCTURE = (
    "its structure has a member of the type {0}, which would be base64 in text; return the block beside the structure, as "
    "tuple[..., {0}], or in a ToolResult(content=[...], structured_content=...)"
)


def return_spec(annotation: object) -> ReturnSpec:
    """Return the output schema and the conversion for a return annotation that is neither text nor None.

    Raises:
        TypeError: the annotation is an interim result, which only the session makes, or a type that JSON cannot represent.
    """
    parts = [part for part in parts_of(annotation) if isinstance(part, type)]
    if any(issubclass(part, Result) and issubclass(part, mcp_types.InputRequiredResult) for part in parts):
        raise TypeError(ASK_INSTEAD)
    if any(issubclass(part, bytes | bytearray | memoryview) for part in parts):
        raise TypeError(f"it returns {inspect.formatannotation(annotation)}, and JSON has no bytes; {USE_MEDIA}")
    if annotation in (inspect.Signature.empty, object):
        return ReturnSpec(None, reading_files(content_result))
    if any(issubclass(part, Block | Media | CallToolResult) for part in parts):
        return ReturnSpec(None, reading_files(blocks_result))
    return structured_spec(annotation)


def structured_spec(annotation: object) -> ReturnSpec:
    """Return the output schema and the conversion for the annotation of a structure. Raises as `return_spec` does."""
    # Revisions before 2026-07-28 require an object as structured content, so that any other value becomes its member `result`.
    wrapped = not is_object(annotation)
    try:
        adapter: TypeAdapter[object] = TypeAdapter(cast("type[object]", annotation))
        schema = inlined(adapter.json_schema(mode="serialization", schema_generator=ReturnSchema)).schema
    except UnknownReference as error:
        raise TypeError(f"it returns {inspect.formatannotation(annotation)}, and {error.message}") from error
    except PydanticUserError as error:
        raise TypeError(f"it returns {unsupported_type(annotation, error)}") from error
    except SchemaError as error:
        raise TypeError(
            f"it returns {inspect.formatannotation(annotation)}, which has {unknown_pattern(error)}"
        ) from error
    declared = ReturnModel[annotation]  # type: ignore[valid-type]
    if not is_open(schema):
        # Most tools: nothing in their values can be a block, so that nothing is looked for.
        return ReturnSpec(wrapped_schema(schema) if wrapped else schema, partial(structured_result, declared, wrapped))
    if wrapped:
        # Without a schema, because a client would insist on the structure, which a list with blocks has not.
        return ReturnSpec(None, reading_files(partial(open_list_result, declared)))
    return ReturnSpec(schema, reading_files(partial(open_object_result, declared)))


def wrapped_schema(schema: JsonObject) -> JsonObject:
    """Return the schema of an object whose member `result` has this schema."""
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    inner: JsonObject = {key: value for key, value in schema.items() if key != "$defs"}
    return {"type": "object", "properties": {"result": inner}, "required": ["result"], **definitions}


def schema_return_spec(schema: JsonObject, name: str) -> ReturnSpec:
    """Return the output schema and the conversion for an author's own JSON Schema, with any keyword of 2020-12.

    Args:
        name: of the function, for errors.

    Raises:
        ValueError: it is not a valid schema; the message says what is wrong.
    """
    declared = Schema.compile(schema, f"{name}: output_schema")
    return ReturnSpec(schema, reading_files(partial(schema_checked_result, declared)))


def content_result(value: object) -> CallToolResult:
    """Return the result for a value without a declared structure."""
    match value:
        case CallToolResult():
            return with_text(value)
        case Result() if is_interim(value):
            raise ReturnError(ASK_INSTEAD)
        case _:
            return CallToolResult(content=content_of(value))


def blocks_result(value: object) -> CallToolResult:
    """Return the result for a value that is declared to be blocks, or to have some beside other parts."""
    parts = value if isinstance(value, list | tuple) else None
    if parts is None:
        return content_result(value)
    return CallToolResult(content=[block for part in parts for block in content_of(part)])


def structured_result(declared: type[ReturnModel[object]], wrapped: bool, value: object) -> CallToolResult:
    """Return a result with the value as structured content and as text.

    Raises:
        ReturnError: the value does not match the annotation, or is not JSON; both are bugs of the tool.
    """
    if isinstance(value, CallToolResult):
        return with_text(checked_result(value, declared, wrapped), wrapped)
    return json_result(encoded(declared, value), wrapped)


def open_object_result(declared: type[ReturnModel[object]], value: object) -> CallToolResult:
    """Return a result for an object that may hold anything. Blocks in it are moved to the content."""
    if isinstance(value, CallToolResult):
        return with_text(checked_result(value, declared, wrapped=False))
    apart = take_apart(value, partial(encoded, declared))
    return CallToolResult(content=apart.content(), structured_content=apart.rest)


def open_list_result(declared: type[ReturnModel[object]], value: object) -> CallToolResult:
    """Return a result for a list, or something else, that may hold anything: with blocks it is content and nothing else."""
    if isinstance(value, CallToolResult | Block | Media) or is_interim(value):
        return content_result(value)
    apart = take_apart(value, partial(encoded, declared))
    if apart.blocks and isinstance(value, list | tuple):
        return CallToolResult(content=content_of(value))
    content = apart.content(apart.rest if isinstance(apart.rest, str) else None)
    return CallToolResult(content=content, structured_content={"result": apart.rest})


def encoded(declared: type[ReturnModel[object]], value: object) -> JsonValue:
    """Return a value as JSON if it matches its annotation.

    Raises:
        ReturnError: it does not, or JSON cannot represent it.
    """
    try:
        return to_json_value(declared, declared.model_validate(value))
    except ValueError as error:  # pydantic's `ValidationError` is one too
        check_not_coroutine(value)
        mismatch = f"{MISMATCH}: {error_summary(error)}" if isinstance(error, ValidationError) else None
        raise ReturnError(mismatch or f"{NOT_JSON}: {error}") from None


def to_json_value(declared: type[ReturnModel[object]], value: ReturnModel[object]) -> JsonValue:
    """Return a validated value as JSON.

    Raises:
        ValidationError: a member does not match its annotation.
        ValueError: JSON cannot represent it.
    """
    try:
        content: JsonValue = value.model_dump(mode="json", by_alias=True, warnings="error")
    except PydanticSerializationError:
        # Validation does not look into a model or dataclass that exists already, so that a member that was set to something
        # else shows only here. It is validated again as JSON, for an error that names the member.
        content = value.model_dump(mode="json", by_alias=True, warnings="none")
        content = declared.model_validate(content).model_dump(mode="json", by_alias=True, warnings="error")
    return content


def checked_result(result: CallToolResult, declared: type[ReturnModel[object]], wrapped: bool) -> CallToolResult:
    """Return a result that the tool built, if its structured content matches the annotation (L-TOOL-5s)."""
    if not result.is_error:  # an error has no structure to declare
        content = result.structured_content
        try:
            declared.model_validate(content["result"] if wrapped and isinstance(content, dict) else content)
        except (KeyError, ValidationError) as error:
            what = error_summary(error) if isinstance(error, ValidationError) else "result: Field required"
            raise ReturnError(f"{STRUCTURE_MISMATCH}: {what}") from None
    return result


def schema_checked_result(declared: Schema, value: object) -> CallToolResult:
    """Return a result with the value, which must match a JSON Schema, as structured content and as text.

    Raises:
        ReturnError: the value does not match, or is not JSON.
        DeferredCheck: that takes long to find out.
    """
    if isinstance(value, CallToolResult):
        result, mismatch = with_text(value), STRUCTURE_MISMATCH
    else:
        apart, mismatch = take_apart(value, as_json), MISMATCH
        result = CallToolResult(content=apart.content(), structured_content=apart.rest)
    if result.is_error:  # an error has no structure to declare
        return result

    def matching(problem: str | None) -> CallToolResult:
        if problem is not None:
            raise ReturnError(f"{mismatch}: {problem}")
        return result

    return checked(declared, result.structured_content, matching)


def json_result(content: JsonValue, wrapped: bool) -> CallToolResult:
    """Return a result with JSON as structured content and as text, for clients that read only the text."""
    return CallToolResult(
        content=[TextContent(text=plain_text(content))], structured_content={"result": content} if wrapped else content
    )


def with_text(result: CallToolResult, wrapped: bool = False) -> CallToolResult:
    """Return a result that a tool built; if it left out the content, with its structured content as text."""
    if "content" in result.model_fields_set or "structured_content" not in result.model_fields_set:
        sound = [sound_block(block) for block in result.content]
        return result if sound == result.content else result.model_copy(update={"content": sound})
    content = result.structured_content
    shown = content["result"] if wrapped and isinstance(content, dict) and "result" in content else content
    return result.model_copy(update={"content": [TextContent(text=plain_text(shown))]})


def plain_text(content: JsonValue) -> str:
    """Return the text for a JSON value: a string as it is, anything else as JSON."""
    return content if isinstance(content, str) else json_text(content)


def parts_of(annotation: object) -> Iterator[object]:
    """Yield an annotation and, at any depth, its arguments: of a union, a list, a dict, an alias."""
    if isinstance(annotation, TypeAliasType | getattr(types, "TypeAliasType", TypeAliasType)):
        yield from parts_of(cast("TypeAliasType", annotation).__value__)
    elif get_origin(annotation) is Annotated:
        yield from parts_of(get_args(annotation)[0])
    else:
        yield annotation
        for argument in get_args(annotation):
            yield from parts_of(argument)


def is_object(annotation: object) -> bool:
    """Return whether the JSON of an annotation is an object."""
    origin = get_origin(annotation) or annotation
    if is_typeddict(origin):
        return True
    return isinstance(origin, type) and (issubclass(origin, BaseModel | dict) or is_dataclass(origin))
