"""What both ends of a WebSocket agree on: the subprotocol, and the close frames that they send."""

from __future__ import annotations

from typing import Final

from trio_mcp.base.named_tuples import NamedTuple

SUBPROTOCOL: Final = "mcp"
"""What a client has to offer, and what the server answers."""


class Close(NamedTuple):
    """A close frame: its code (RFC 6455, 7.4.1) and its reason, of at most 123 bytes."""

    code: int
    reason: str


CLOSE_GOING_AWAY: Final = Close(1001, "this server is shutting down")
CLOSE_BINARY: Final = Close(1003, "a message is JSON in a text frame")
CLOSE_EXPIRED: Final = Close(1008, "these credentials are no longer accepted")
