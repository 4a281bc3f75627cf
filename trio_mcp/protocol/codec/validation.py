"""JSON to models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ...errors import RemoteProtocolError
from ...types import JsonValue, Model
from ..jsonrpc import INVALID_PARAMS
from ..strict_json import dumps

M = TypeVar("M", bound=Model)

SHOWN: Final = 64
"""Characters of a wrong value that its error shows."""

NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


def validated(model: type[M], value: JsonValue, path: str, written: Mapping[str, str] = NO_NAMES) -> M:
    """Return `value` as a `model`; `path` is its name in errors, for example "params".

    Args:
        written: members that the peer wrote under other names, which errors then use.

    Raises:
        RemoteProtocolError: -32602; the message names the first wrong member, as the peer wrote it, and the reason.
    """
    try:
        # Without the Python function `model_validate`, which does nothing more and costs as much as a small model.
        valid: M = model.__pydantic_validator__.validate_python(value, by_alias=True, by_name=False)
        return valid
    except ValidationError as error:
        # Only the first: the further branches of a union fail too, and would bury it.
        first = error.errors(include_url=False, include_context=False)[0]
        where = path + _located(first["loc"], value, written)
        raise RemoteProtocolError(f"{where}: {first['msg'][:200]}{_instead(first)}", code=INVALID_PARAMS) from None


def _instead(problem: ErrorDetails) -> str:
    """Return the wrong value for the message, if there is one and it is short."""
    given = problem["input"]
    if problem["type"] == "missing" or not isinstance(given, str | int | float | None):
        return ""
    return f", not {given[:SHOWN]!r}" if isinstance(given, str) else f", not {dumps(given).decode()[:SHOWN]}"


def _located(steps: Sequence[str | int], value: JsonValue, written: Mapping[str, str]) -> str:
    """Return the path of a member, like `.rows[3].price`."""
    # pydantic's location also has steps for branches of unions and for validators, which the peer has never seen: only those
    # that lead to a member of the value count.
    located = ""
    for position, step in enumerate(steps):
        if isinstance(value, dict) and isinstance(step, str) and step in value:
            located, value = f"{located}.{written.get(step, step)[:64]}", value[step]
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            located, value = f"{located}[{step}]", value[step]
        elif isinstance(value, dict) and position == len(steps) - 1:
            # A member that is missing.
            located += f".{written.get(step, step) if isinstance(step, str) else step}"
    return located
