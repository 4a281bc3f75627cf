"""Converting the text that a tool returns to the result that its caller gets; `results` does it for everything else.

Most tools return text. A server of such tools alone loads neither `results` nor the models of content.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import Final, TypeAlias, cast

from ... import types
from ...base.named_tuples import NamedTuple
from ...types import CallToolResult, JsonObject, Result
from .. import values
from .return_errors import ReturnError, check_not_coroutine, value_label

MISMATCH = "the tool returned something else than it declares"

Converter: TypeAlias = Callable[[object], CallToolResult]


class ReturnSpec(NamedTuple):
    """The output schema of a tool, or None, and how to convert a value to a result that matches it."""

    schema: JsonObject | None
    convert: Converter


def return_spec(annotation: object) -> ReturnSpec:
    """Return the output schema and the conversion for a return annotation.

    Raises:
        TypeError: the annotation is an interim result, which only the session makes, or a type that JSON cannot represent.
    """
    if annotation is str:
        return ReturnSpec(None, TEXT)
    if annotation in (None, NoneType):
        return ReturnSpec(None, partial(text_result, NoneType))
    return values.results.return_spec(annotation)


def error_result(text: str, meta: JsonObject | None = None) -> CallToolResult:
    """Return a result that tells the model about an error, and programs what is in `meta`."""
    return CallToolResult(content=[types.TextContent(text=text)], is_error=True, meta=meta)


def text_result(declared: type, value: object) -> CallToolResult:
    """Return the result for a value that is declared to be text, or None.

    Raises:
        ReturnError: it is something else, which is a bug of the tool.
    """
    if type(value) is str and declared is str:
        # One validation for both models, and no `__init__` of either.
        members = {"content": [{"type": "text", "text": value}]}
        result: CallToolResult = CallToolResult.__pydantic_validator__.validate_python(members)
        return result
    if not isinstance(value, (declared, CallToolResult)) and not is_interim(value):
        check_not_coroutine(value)
        expected = "None" if declared is NoneType else declared.__name__
        raise ReturnError(f"{MISMATCH}: {value_label(value)}, not {expected}")
    return values.results.content_result(value)


TEXT: Final[Converter] = partial(text_result, str)


def plain_text_result(value: object) -> CallToolResult | str:
    """Return a text as it is, for the encoder, and the result for another value. Raises as `text_result` does."""
    return value if type(value) is str else text_result(str, value)


PLAIN_TEXT: Final = cast("Converter", plain_text_result)
"""Takes the place of `TEXT` where nothing looks at the result."""


def is_interim(value: object) -> bool:
    # In this order, because the type of an interim result is loaded with those of all questions.
    return isinstance(value, Result) and isinstance(value, types.InputRequiredResult)
