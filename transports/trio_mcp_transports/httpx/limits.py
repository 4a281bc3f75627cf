"""Limits of a client: times in seconds, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trio_mcp.protocol.json_limits import CLIENT_LIMITS

CONNECT_TIMEOUT: Final = 10.0
POST_TIMEOUT: Final = 5.0
MAX_MESSAGE: Final = CLIENT_LIMITS.max_bytes
MAX_VALUES: Final = CLIENT_LIMITS.max_values

INBOX: Final = 256
"""Messages that wait for the session to take them."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What a client allows a server.

    Attributes:
        connect: seconds to reach the server, and to hand it a message.
        post_timeout: seconds that the server may take to accept a message that it does not answer.
        message: bytes that one message of the server may have.
        values: how many values one message of the server may have (`JsonLimits.max_values`).
    """

    connect: float = CONNECT_TIMEOUT
    post_timeout: float = POST_TIMEOUT
    message: int = MAX_MESSAGE
    values: int = MAX_VALUES
