"""What a client allows a server: times in seconds, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONNECT_TIMEOUT: Final = 10.0
TELL_TIMEOUT: Final = 5.0
MAX_MESSAGE: Final = 16 * 1024 * 1024

INBOX: Final = 256
"""Messages that wait for the session to take them."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What a client allows a server.

    Attributes:
        connect: seconds to reach it, and to hand it a message.
        tell: seconds that it may take to accept what it need not answer.
        message: bytes that one message of it may have.
    """

    connect: float = CONNECT_TIMEOUT
    tell: float = TELL_TIMEOUT
    message: int = MAX_MESSAGE
