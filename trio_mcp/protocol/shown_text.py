"""Text with a lone surrogate, which is half of a character: replaced where it is shown, refused where something acts on it.

JSON in UTF-8 cannot hold it. In Python it comes from the name of a file that is not UTF-8, in other languages from a text that
was cut. All of this runs after the strict way has failed, in messages of either direction.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

from pydantic_core import to_json

from ..base.logs import SHARED_LINES, RepeatedRecords, peer_logger
from ..types.base import JsonValue, Model
from .strict_json import LoneSurrogate, dumps, first_flaw, surrogates

M = TypeVar("M", bound=Model)

CANNOT_SEND: Final = "This cannot be sent as JSON: {}"
"""The error for what JSON cannot hold."""

NAMES: Final = frozenset(
    (
        *("cursor", "id", "jsonrpc", "method", "name", "nextCursor", "progressToken", "protocolVersion", "requestId"),
        *("requestState", "role", "taskId", "toolUseId", "type", "uri", "uriTemplate", "url"),
    )
)
"""Members that name something. Half of a character in one of them stays, for what reads or writes the member to refuse."""

_ARGUMENTS: Final = frozenset(("arguments", "input"))
"""Members with what a tool acts on, so that nothing in them is changed."""

_FREE_DATA: Final = frozenset(("_meta", "data", "inputSchema", "outputSchema", "requestedSchema", "structuredContent"))
"""Members whose content is free: a `name` in them is no name of the protocol."""

records: Final = RepeatedRecords(peer_logger("trio_mcp.protocol"), lines=SHARED_LINES)
"""The warnings of all connections."""


def replace_surrogates(value: JsonValue, kept: AbstractSet[str] = NAMES) -> JsonValue:
    """Return a value in which U+FFFD takes the place of each lone surrogate, but in members of the names `kept`.

    Raises:
        LoneSurrogate: one is in the name of a member, or in the arguments of a tool.
    """
    if isinstance(value, str):
        return surrogates().sub("\ufffd", value)
    if isinstance(value, list):
        return [replace_surrogates(each, kept) for each in value]
    if not isinstance(value, dict):
        return value
    if any(map(surrogates().search, value)):
        raise LoneSurrogate("the name of a member holds a lone surrogate", value)
    return {name: _replace_in_member(name, each, kept) for name, each in value.items()}


def _replace_in_member(name: str, value: JsonValue, kept: AbstractSet[str]) -> JsonValue:
    # The value of a name or an id is text. What is below such a name in free data is data.
    if name in kept and isinstance(value, str):
        return value
    if kept and name in _ARGUMENTS and isinstance(value, dict):
        return _unchanged(value, name)
    return replace_surrogates(value, frozenset() if name in _FREE_DATA else kept)


def without_broken_names(value: JsonValue, *, in_list: bool = False) -> JsonValue:
    """Return a result whose lists have null for a name with a lone surrogate, so that a client drops that item alone.

    Args:
        value: what `replace_surrogates` returned: only names still have such surrogates.
    """
    if isinstance(value, str):
        return None if in_list and surrogates().search(value) else value
    if isinstance(value, list):
        return [without_broken_names(each, in_list=True) for each in value]
    if isinstance(value, dict):
        return {name: without_broken_names(each, in_list=in_list) for name, each in value.items()}
    return value


def _unchanged(value: JsonValue, name: str) -> JsonValue:
    try:
        to_json(value)
    except ValueError as error:
        raise LoneSurrogate(first_flaw(value, name) or str(error), value) from None
    return value


def dump_shown(value: JsonValue, root: str = "", kept: AbstractSet[str] = NAMES) -> bytes:
    """Encode a value as `dumps` does, but with U+FFFD for lone surrogates in text that is shown, and a warning.

    Args:
        kept: members that name something; none for data, in which every text is shown.

    Raises:
        ValueError: as `dumps` does. A lone surrogate in a name, an id or an argument counts.
    """
    try:
        return dumps(value, root)
    except ValueError as error:
        try:
            shown = dumps(replace_surrogates(value, kept), root)
        except LoneSurrogate:
            raise error from None
        warn_of_replaced(str(error))
        return shown


def shown_model(model: M, root: str = "") -> M:
    """Return a model that JSON can hold: this one, or a copy with U+FFFD for lone surrogates in text that is shown.

    Raises:
        ValueError: as `dump_shown` does.
    """
    wire = model.wire()
    try:
        dumps(wire, root)
    except ValueError:
        dump_shown(wire, root)
        return type(model).model_validate(replace_surrogates(wire))
    return model


def warn_of_replaced(where: str) -> None:
    """Log that a lone surrogate was replaced."""
    records.log("a text has half of a character (a lone surrogate), which was replaced: %s", where)
