"""From what a tool returns to what its caller gets."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
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

T = TypeVar("T")


ToolResult: TypeAlias = CallToolResult
"""A tool may return one of these to say everything itself: content, structured content, `is_error`, `_meta`."""

Block: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)

ASK_INSTEAD = "a tool asks with ctx.elicit, ctx.sample or ctx.roots; it does not return an InputRequiredResult"

NOT_JSON = "what was returned cannot be said in JSON"

Converter: TypeAlias = Callable[[object], CallToolResult]


class ReturnSpec(NamedTuple):
    """The output schema that a tool promises, or None, and how to turn a value into a result that keeps it."""

    schema: JsonObject | None
    convert: Converter


def return_spec(annotation: object) -> ReturnSpec:
    """What a return annotation promises.

    Text, content blocks, `ToolResult` and None promise no structure. A model, dataclass, TypedDict or dict is the structured
    content itself; anything else (a number, a list, a union) becomes its member `result`, since older revisions demand an object.

    Raises:
        TypeError: it is an interim result, which only the session makes, or no JSON can be made of it.
    """
    if isinstance(annotation, type) and issubclass(annotation, InputRequiredResult):
        raise TypeError(ASK_INSTEAD)
    if annotation is inspect.Signature.empty or is_unstructured(annotation):
        return ReturnSpec(None, plain)
    wrapped = not is_object(annotation)
    try:
        adapter: TypeAdapter[object] = TypeAdapter(cast("type[object]", annotation))
        schema: JsonObject = adapter.json_schema(mode="serialization")
    except PydanticUserError as error:
        raise TypeError(
            f"it returns {inspect.formatannotation(annotation)}, which no JSON can be made of; return a pydantic model, a "
            "dataclass or a plain type"
        ) from error
    if wrapped:
        definitions = schema.pop("$defs", None)
        schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
        if definitions is not None:
            schema["$defs"] = definitions
    promised = ReturnModel[annotation]  # type: ignore[valid-type]
    return ReturnSpec(schema, lambda value: structured(promised, value, wrapped))


def schema_return_spec(schema: JsonObject) -> ReturnSpec:
    """What an author's own JSON Schema promises; any keyword of 2020-12 may be in it.

    Raises:
        ValueError: it is no schema; the message says what is wrong.
    """
    promised = Schema.compile(schema, "output_schema")
    return ReturnSpec(schema, lambda value: schema_checked_result(promised, value))


def error_result(text: str) -> CallToolResult:
    """A result that tells the model what went wrong."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


class ReturnModel(RootModel[T]):
    """Checks and writes a promised value. It keeps NaN visible, so that it is refused and not made null."""

    model_config = ConfigDict(ser_json_inf_nan="constants", arbitrary_types_allowed=True, defer_build=True)


class ReturnError(LocalProtocolError, TypeError):
    """A handler returned what it does not declare, or what cannot be sent; the text is safe to show."""


def plain(value: object) -> CallToolResult:
    """A value without a promised structure."""
    match value:
        case str():
            return CallToolResult(content=[TextContent(text=value)])
        case None:
            return CallToolResult(content=[])
        case CallToolResult():
            return value
        case InputRequiredResult():
            raise ReturnError(ASK_INSTEAD)
        case TextContent() | ImageContent() | AudioContent() | ResourceLink() | EmbeddedResource():
            return CallToolResult(content=[value])
        case list() | tuple() if value and all(isinstance(item, str | Block) for item in value):
            return CallToolResult(content=[as_block(item) for item in value])
        case _:
            return CallToolResult(content=[TextContent(text=to_json_text(value, by_alias=False))])


def structured(promised: type[ReturnModel[object]], value: object, wrapped: bool) -> CallToolResult:
    """A value whose structure was promised: it is checked, and sent both as JSON and as text (L-TOOL-5s).

    Raises:
        ReturnError: the value is not what the annotation promised, or not JSON; a bug of the tool.
    """
    if isinstance(value, CallToolResult):
        return whole(value, promised, wrapped)
    try:
        content = written(promised, promised.model_validate(value))
    except ValidationError as error:
        check_not_coroutine(value)
        raise ReturnError(f"the tool returned something else than it declares: {error_summary(error)}") from None
    except ValueError as error:
        check_not_coroutine(value)
        raise ReturnError(f"{NOT_JSON}: {error}") from None
    if wrapped:
        content = {"result": content}
    return CallToolResult(content=[TextContent(text=json_text(content))], structured_content=content)


def written(promised: type[ReturnModel[object]], value: ReturnModel[object]) -> JsonValue:
    """A promised value as JSON. A model or dataclass is not looked into when it is validated, so that one whose members were
    set to something else shows only here; it is validated again then.

    Raises:
        ValidationError: a member is not what was promised.
        ValueError: JSON cannot say it.
    """
    try:
        content: JsonValue = value.model_dump(mode="json", by_alias=True, warnings="error")
    except PydanticSerializationError:
        content = value.model_dump(mode="json", by_alias=True, warnings="none")
        content = promised.model_validate(content).model_dump(mode="json", by_alias=True, warnings="error")
    return content


def whole(result: CallToolResult, promised: type[ReturnModel[object]], wrapped: bool) -> CallToolResult:
    """A result that a tool made itself keeps the promise too, unless it tells of an error (L-TOOL-5s)."""
    if not result.is_error:
        content = result.structured_content
        try:
            promised.model_validate(content["result"] if wrapped and isinstance(content, dict) else content)
        except (KeyError, ValidationError) as error:
            what = error_summary(error) if isinstance(error, ValidationError) else "result: Field required"
            raise ReturnError(f"the structured content is not what the tool declares: {what}") from None
    return result


def schema_checked_result(promised: Schema, value: object) -> CallToolResult:
    """A value that has to fit a JSON Schema, sent both as JSON and as text.

    Raises:
        ReturnError: it does not fit, or is no JSON.
    """
    if isinstance(value, CallToolResult):
        if not value.is_error and (problem := promised.check(value.structured_content)) is not None:
            raise ReturnError(f"the structured content is not what the tool declares: {problem}")
        return value
    content = as_json(value)
    text = json_text(content)
    if (problem := promised.check(content)) is not None:
        raise ReturnError(f"the tool returned something else than it declares: {problem}")
    return CallToolResult(content=[TextContent(text=text)], structured_content=content)


def to_json_text(value: object, *, by_alias: bool = True) -> str:
    """Any value as JSON text.

    Raises:
        ReturnError: JSON cannot say it.
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
    """Say what is wrong with what cannot be a result, when it is a coroutine: an `await` is missing."""
    if inspect.iscoroutine(value):
        raise ReturnError(f"{NOT_JSON}: {value.__name__}() was not awaited") from None


def json_text(value: JsonValue) -> str:
    try:
        return dumps(value, "result").decode()
    except ValueError as error:
        raise ReturnError(f"{NOT_JSON}: {error}") from None


def shown(value: object) -> str:
    """A value as an error may show it: what it is, not what it holds."""
    return "None" if value is None else f"a value of the type {type(value).__name__}"


def as_block(item: object) -> Block:
    return TextContent(text=item) if isinstance(item, str) else item  # type: ignore[return-value]


def is_unstructured(annotation: object) -> bool:
    """Text, nothing, blocks, a result, or a union or sequence of those."""
    if annotation is None or annotation is type(None) or annotation is str or annotation is object:
        return True
    if isinstance(annotation, type) and issubclass(annotation, (*BLOCKS, CallToolResult)):
        return True
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return all(is_unstructured(argument) for argument in arguments)
    if origin in (list, tuple, Sequence):
        blocks = [argument for argument in arguments if argument is not ...]
        return bool(blocks) and all(argument is not str and is_unstructured(argument) for argument in blocks)
    return False


def is_object(annotation: object) -> bool:
    """Whether its JSON is an object."""
    origin = get_origin(annotation) or annotation
    if is_typeddict(origin):
        return True
    return isinstance(origin, type) and (
        issubclass(origin, BaseModel | dict) or hasattr(origin, "__dataclass_fields__")
    )
