"""Members of a message that JSON-RPC does not define: nothing reads them, and a proxy passes them on."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from ..types.base import JsonObject
from .strict_json import dumps

CALL: Final = frozenset(("jsonrpc", "id", "method", "params"))
ANSWER: Final = frozenset(("jsonrpc", "id", "result", "error"))
ERROR: Final = frozenset(("code", "message", "data"))


def more_in(members: JsonObject, known: AbstractSet[str]) -> JsonObject | None:
    """Return the members of other names; None if there are none."""
    # Nearly every message.
    if members.keys() <= known:
        return None
    return {name: value for name, value in members.items() if name not in known}


def dump_more(more: JsonObject | None) -> bytes:
    """Return members as they follow others in an object."""
    return b"," + dumps(more)[1:-1] if more else b""
