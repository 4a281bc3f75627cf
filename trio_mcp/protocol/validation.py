"""JSON to models, with errors that name the member at fault the way a peer wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..errors import RemoteProtocolError
from ..types import JsonValue, Model
from .jsonrpc import INVALID_PARAMS
from .strict_json import dumps

M = TypeVar("M", bound=Model)

SHOWN = 64
"""Characters of a wrong value that its error shows."""


def validated(model: type[M], value: JsonValue, path: str) -> M:
    """`value` as a `model`; `path` is what the error calls it, for example "params".

    Raises:
        RemoteProtocolError: -32602, it does not fit; the message names the first member that does not, and why.
    """
    try:
        return model.model_validate(value, by_alias=True, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = path + _located(first["loc"], value)
        raise RemoteProtocolError(f"{where}: {first['msg'][:200]}{_instead(first)}", code=INVALID_PARAMS) from None


def _instead(problem: ErrorDetails) -> str:
    """The value at fault, where it is short enough to be shown and not just missing."""
    given = problem["input"]
    if problem["type"] == "missing" or not isinstance(given, str | int | float | None):
        return ""
    return f", not {given[:SHOWN]!r}" if isinstance(given, str) else f", not {dumps(given).decode()[:SHOWN]}"


def _located(steps: Sequence[str | int], value: JsonValue) -> str:
    """The steps that name members of `value`: pydantic also counts the branches of unions as steps."""
    located = ""
    for position, step in enumerate(steps):
        if isinstance(value, dict) and isinstance(step, str) and step in value:
            located, value = f"{located}.{step[:64]}", value[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            located, value = f"{located}[{step}]", value[step]
        elif isinstance(value, dict) and position == len(steps) - 1:
            located += f".{step}"  # a member that is missing
    return located
