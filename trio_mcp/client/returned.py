"""The value of a tool's result as the type that its caller wants: `call_tool(..., returns=list[Hit])`."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from inspect import formatannotation
from typing import Final, TypeAlias, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from ..errors import RemoteProtocolError
from ..protocol.strict_json import dumps
from ..types import CallToolResult

ValueReader: TypeAlias = Callable[[str, CallToolResult], object]
"""Returns the value in the result of the tool of that name."""


def value_reader(returns: object) -> ValueReader:
    """Return a function that reads a value of this type.

    Raises:
        TypeError: pydantic cannot validate the type.
    """
    # Cached, because building a validator costs more than most calls; types are few and live as long as the program. A type
    # with metadata that cannot be hashed is not.
    return cached_reader(returns) if is_hashable(returns) else new_reader(returns)


def is_hashable(value: object) -> bool:
    """Return whether a value can be hashed, with all that it is made of."""
    try:
        hash(value)
    except TypeError:
        return False
    return True


def new_reader(returns: object) -> ValueReader:
    """Return a function that reads a value of this type. Raises as `value_reader` does."""
    try:
        adapter: TypeAdapter[object] = TypeAdapter(cast("type[object]", returns))
    except PydanticUserError as error:
        problem = error.message.partition("\n")[0]
    except (AttributeError, KeyError, TypeError) as error:
        problem = str(error)
    else:
        return partial(read_value, adapter, returns)
    raise TypeError(
        f"returns must be a type that pydantic can validate, such as list[Hit], not {returns!r:.80}: {problem}"
    )


cached_reader: Final = lru_cache(maxsize=256)(new_reader)


def read_value(adapter: TypeAdapter[object], returns: object, name: str, result: CallToolResult) -> object:
    """Return the value in a result.

    Raises:
        RemoteProtocolError: it does not match the type.
    """
    try:
        # As JSON, so that a strict model accepts the text of a date, say.
        if "structured_content" in result.model_fields_set or result.data is None:
            return adapter.validate_json(dumps(result.data))
        return text_value(adapter, result.text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path = ".".join(str(step)[:64] for step in first["loc"])[:256] or "value"
        raise RemoteProtocolError(
            f"the result of the tool {name} is no {formatannotation(returns)[:80]}: {path}: {first['msg'][:200]}"
        ) from None


def text_value(adapter: TypeAdapter[object], text: str) -> object:
    """Return the value of a result that has nothing but text: the text, or what it is as JSON."""
    try:
        return adapter.validate_python(text, strict=True)
    except ValidationError:
        pass
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        if error.errors(include_url=False, include_input=False)[0]["type"] != "json_invalid":
            raise
    return adapter.validate_python(text)
