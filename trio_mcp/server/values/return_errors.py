"""The errors of what functions return."""

from __future__ import annotations

from collections.abc import Coroutine

from ...errors import LocalProtocolError

NOT_JSON = "the returned value cannot be serialized to JSON"


class ReturnError(LocalProtocolError, TypeError):
    """A handler returned what it does not declare, or what cannot be sent; the text is safe to show."""


def check_not_coroutine(value: object) -> None:
    """Raise `ReturnError` if the value is a coroutine: an `await` is missing, which pydantic's own error does not say."""
    if isinstance(value, Coroutine):
        name = getattr(value, "__name__", "a coroutine")
        raise ReturnError(f"{NOT_JSON}: {name}() was not awaited") from None


def value_label(value: object) -> str:
    """Return the type of a value for an error that a peer reads; its content may be secret."""
    return "None" if value is None else f"a value of the type {type(value).__name__}"
