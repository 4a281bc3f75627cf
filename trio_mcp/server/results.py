"""From what a tool returns to what its caller gets."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import TypeAlias, Union, get_args, get_origin, is_typeddict

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import to_json

from ..types import (
    AudioContent,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    JsonObject,
    JsonValue,
    ResourceLink,
    TextContent,
)
from .forms import explained

__all__ = ["ToolResult", "error_result", "read_return"]

ToolResult: TypeAlias = CallToolResult
"""A tool may return one of these to say everything itself: content, structured content, `is_error`, `_meta`."""

Block: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource
BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)

Converter: TypeAlias = Callable[[object], CallToolResult]


def read_return(annotation: object) -> tuple[JsonObject | None, Converter]:
    """The output schema that a return annotation promises (or None), and how to turn a value into a result.

    Text, content blocks, `ToolResult` and None promise no structure. A model, dataclass, TypedDict or dict is the structured
    content itself; anything else (a number, a list, a union) becomes its member `result`, since older revisions demand an object.
    """
    if annotation is inspect.Signature.empty or is_unstructured(annotation):
        return None, plain
    adapter: TypeAdapter[object] = TypeAdapter(annotation)
    wrapped = not is_object(annotation)
    schema: JsonObject = adapter.json_schema(mode="serialization")
    if wrapped:
        definitions = schema.pop("$defs", None)
        schema = {"type": "object", "properties": {"result": schema}, "required": ["result"]}
        if definitions is not None:
            schema["$defs"] = definitions
    return schema, lambda value: structured(adapter, value, wrapped)


def error_result(text: str) -> CallToolResult:
    """A result that tells the model what went wrong."""
    return CallToolResult(content=[TextContent(text=text)], is_error=True)


def plain(value: object) -> CallToolResult:
    """A value without a promised structure."""
    match value:
        case str():
            return CallToolResult(content=[TextContent(text=value)])
        case None:
            return CallToolResult(content=[])
        case CallToolResult():
            return value
        case TextContent() | ImageContent() | AudioContent() | ResourceLink() | EmbeddedResource():
            return CallToolResult(content=[value])
        case list() | tuple() if value and all(isinstance(item, str | Block) for item in value):
            return CallToolResult(content=[as_block(item) for item in value])
        case _:
            return CallToolResult(content=[TextContent(text=to_json(value, inf_nan_mode="constants").decode())])


def structured(adapter: TypeAdapter[object], value: object, wrapped: bool) -> CallToolResult:
    """A value whose structure was promised: it is checked, and sent both as JSON and as text (L-TOOL-5s).

    Raises:
        TypeError: the value is not what the annotation promised; a bug of the tool.
    """
    if isinstance(value, CallToolResult):
        return value
    try:
        checked = adapter.validate_python(value)
    except ValidationError as error:
        raise TypeError(f"the tool returned something else than it declares: {explained(error)}") from None
    content: JsonValue = adapter.dump_python(checked, mode="json", by_alias=True)
    if wrapped:
        content = {"result": content}
    text = to_json(content).decode()
    return CallToolResult(content=[TextContent(text=text)], structured_content=content)


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
