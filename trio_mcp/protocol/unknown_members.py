"""Members of a message that nothing reads, and that a proxy passes on: those that JSON-RPC does not define, and empty ones.

To every reader, empty params and a null `data` are as absent ones. The other side of a proxy may tell them apart.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Final

from ..types.base import JsonObject
from .strict_json import dumps

CALL: Final = frozenset(("jsonrpc", "id", "method", "params"))
ANSWER: Final = frozenset(("jsonrpc", "id", "result", "error"))
ERROR: Final = frozenset(("code", "message", "data"))


def more_in(members: JsonObject, known: AbstractSet[str], empty: str | None = None) -> JsonObject | None:
    """Return the members of other names; None if there are none.

    Args:
        empty: the known member that is returned too: it is there, and says nothing.
    """
    # Nearly every message.
    if empty is None and members.keys() <= known:
        return None
    return {name: value for name, value in members.items() if name not in known or name == empty}


def dump_more(more: JsonObject | None, *, without: str | None = None) -> bytes:
    """Return members as they follow others in an object.

    Args:
        without: the name of one that was written already; it was empty when it was read.
    """
    if more and without in more:
        more = {name: value for name, value in more.items() if name != without}
    return b"," + dumps(more)[1:-1] if more else b""
