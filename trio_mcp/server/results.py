"""Converting the value that a tool returns to the result that its caller gets.

    return annotation            output schema          result
    str, None, content blocks    none                   text or the blocks
    a model, dataclass, dict     of the value           text and structured content
    int, list, a union           of {"result": value}   text and structured content

The structure is checked before it is sent, because a client may check it too, and would blame the server (L-TOOL-5s).
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import NamedTuple, TypeAlias, TypeVar, Union, cast, get_args, get_origin, is_typeddict

from pydantic import BaseModel, ConfigDict, PydanticUserError, RootModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..errors import LocalProtocolError
from ..protocol.schema.json_schema import Schema
from ..protocol.strict_json import dumps
from ..types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    InputRequiredResult,
    JsonObject,
    JsonValue,
    ResourceLink,
    TextContent,
)
from .forms import error_summary
from .schema_checks import checked

T = TypeVar("T")

ToolResult: TypeAlias = CallToolResult
"""A tool may return one of these to control everything: content, structured content, `is_error`, `_meta`."""

Block: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource

ASK_INSTEAD = "a tool asks with ctx.elicit, ctx.sample or ctx.roots; it does not return an InputRequiredResult"

NOT_JSON = "the returned value cannot be serialized to JSON"
MISMATCH = "the tool returned something else than it declares"
STRUCTURE_MISMATCH = "the structured content does not match what the tool declares"

Converter: TypeAlias = Callable[[object], CallToolResult]


class ReturnError(LocalProtocolError, TypeError):
    """A handler returned what it does not declare, or what cannot be sent; the text is safe to show."""


class ReturnSpec(NamedTuple):
    """The output schema of a tool, or None, and how to convert a value to a result that matches it."""

    schema: JsonObject | None
    convert: Converter


class ReturnModel(RootModel[T]):
    """Validates and serializes the value of a return annotation."""

    # "constants" writes NaN as NaN, so that `dumps` rejects it. The default would send null instead, without an error.
    model_config = ConfigDict(ser_json_inf_nan="constants", arbitrary_types_allowed=True, defer_build=True)


def return_spec(annotation: object) -> ReturnSpec:
    """Return the output schema and the conversion for a return annotation.

    Raises:
        TypeError: the annotation is an interim result, which only the session makes, or a type that JSON cannot represent.
    """
    if isinstance(annotation, type) and issubclass(annotation, InputRequiredResult):
        raise TypeError(ASK_INSTEAD)
    if annotation is inspect.Signature.empty or is_unstructured(annotation):
        return ReturnSpec(None, unstructured_result)
    # Revisions before 2026-07-28 require an object as structured content, so that any other value becomes its member `result`.
    wrapped = not is_object(annotation)
    try:
        adapter: TypeAdapter[object] = TypeAdapter(cast("type[object]", annotation))
        schema: JsonObject = adapter.json_schema(mode="serialization")
    except PydanticUserError as error:
        raise TypeError(
            f"it returns {inspect.formatannotation(annotation)}, which JSON cannot represent; return a pydantic model, a "
            "dataclass or a plain type"
        ) from error
    if wrapped:
        definitions = schema.pop("$defs", None)
        schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
        if definitions is not None:
            schema["$defs"] = definitions
    declared = ReturnModel[annotation]  # type: ignore[valid-type]
    return ReturnSpec(schema, lambda value: structured_result(declared, value, wrapped))


def schema_return_spec(schema: JsonObject) -> ReturnSpec:
    """Return the output schema and the conversion for an author's own JSON Schema, with any keyword of 2020-12.

    Raises:
        ValueError: it is not a valid schema; the message says what is wrong.
    """
    declared = Schema.compile(schema, "output_schema")
    return ReturnSpec(schema, lambda value: schema_checked_result(declared, value))


def error_result(text: str, meta: JsonObject | None = None) -> CallToolResult:
    """Return a result that tells the model about an error, and programs what is in `meta`."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True, meta=meta)


def unstructured_result(value: object) -> CallToolResult:
    """Return the result for a value without a declared structure."""
    match value:
        case str():
            return CallToolResult(content=[TextContent(text=value)])
        case None:
            return CallToolResult(content=[])
        case CallToolResult():
            return value
        case InputRequiredResult():
            raise ReturnError(ASK_INSTEAD)
        case _ if isinstance(value, Block):
            return CallToolResult(content=[value])
        case list() | tuple() if value and all(isinstance(item, str | Block) for item in value):
            return CallToolResult(content=[TextContent(text=item) if isinstance(item, str) else item for item in value])
        case _:
            return CallToolResult(content=[TextContent(text=to_json_text(value, by_alias=False))])


def structured_result(declared: type[ReturnModel[object]], value: object, wrapped: bool) -> CallToolResult:
    """Return a result with the value as structured content and as text (L-TOOL-5s).

    Raises:
        ReturnError: the value does not match the annotation, or is not JSON; both are bugs of the tool.
    """
    if isinstance(value, CallToolResult):
        return checked_result(value, declared, wrapped)
    try:
        content = to_json_value(declared, declared.model_validate(value))
    except ValueError as error:  # pydantic's `ValidationError` is one too
        check_not_coroutine(value)
        mismatch = f"{MISMATCH}: {error_summary(error)}" if isinstance(error, ValidationError) else None
        raise ReturnError(mismatch or f"{NOT_JSON}: {error}") from None
    return json_result({"result": content} if wrapped else content)


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
        DearCheck: that takes long to find out.
    """
    result = value if isinstance(value, CallToolResult) else json_result(as_json(value))
    if result.is_error:  # an error has no structure to declare
        return result

    def matching(problem: str | None) -> CallToolResult:
        if problem is not None:
            raise ReturnError(f"{STRUCTURE_MISMATCH if result is value else MISMATCH}: {problem}")
        return result

    return checked(declared, result.structured_content, matching)


def json_result(content: JsonValue) -> CallToolResult:
    """Return a result with JSON as structured content and as text, for clients that read only the text."""
    return CallToolResult(content=[TextContent(text=json_text(content))], structured_content=content)


def to_json_text(value: object, *, by_alias: bool = True) -> str:
    """Return any value as JSON text.

    Raises:
        ReturnError: JSON cannot represent it.
    """
    return json_text(as_json(value, by_alias=by_alias))


def as_json(value: object, *, by_alias: bool = True) -> JsonValue:
    try:
        content: JsonValue = to_jsonable_python(value, by_alias=by_alias, inf_nan_mode="constants")
    except ValueError as error:
        check_not_coroutine(value)
        raise ReturnError(f"{NOT_JSON}: {error}") from None
    return content


def check_not_coroutine(value: object) -> None:
    """Raise `ReturnError` if the value is a coroutine: an `await` is missing, which pydantic's own error does not say."""
    if inspect.iscoroutine(value):
        raise ReturnError(f"{NOT_JSON}: {value.__name__}() was not awaited") from None


def json_text(value: JsonValue) -> str:
    try:
        return dumps(value, "result").decode()
    except ValueError as error:
        raise ReturnError(f"{NOT_JSON}: {error}") from None


def value_label(value: object) -> str:
    """Return the type of a value for an error that a peer reads; its content may be secret."""
    return "None" if value is None else f"a value of the type {type(value).__name__}"


def is_unstructured(annotation: object) -> bool:
    """Return whether an annotation is text, None, blocks, a result, or a union or sequence of those."""
    if annotation is None or annotation is type(None) or annotation is str or annotation is object:
        return True
    if isinstance(annotation, type) and issubclass(annotation, Block | CallToolResult):
        return True
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return all(is_unstructured(argument) for argument in arguments)
    if origin in (list, tuple, Sequence):
        blocks = [argument for argument in arguments if argument is not ...]
        return bool(blocks) and all(argument is not str and is_unstructured(argument) for argument in blocks)
    return False


def is_object(annotation: object) -> bool:
    """Return whether the JSON of an annotation is an object."""
    origin = get_origin(annotation) or annotation
    if is_typeddict(origin):
        return True
    return isinstance(origin, type) and (issubclass(origin, BaseModel | dict) or is_dataclass(origin))
