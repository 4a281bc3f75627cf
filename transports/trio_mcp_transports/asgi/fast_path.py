"""The fast path of a WebSocket that our own server offers next to ASGI messages, as the endpoint sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from trio_mcp.runtime.loop_turn import LoopTurn

FAST_PATH_KEY: Final = "trio_mcp.fast_path"
"""The key of the fast path in the `state` of a scope; another ASGI server has no such key."""


class FastPath(Protocol):
    """What an endpoint may do with its WebSocket besides receiving and sending ASGI messages.

    Attributes:
        on_message: called with the UTF-8 of a message while the application waits in `receive` and no earlier message is queued.
            It returns False to receive the message as an ASGI event instead.
        turn: when it is over, no message is passed to `on_message` before other tasks had a turn of the event loop. None until
            there is an `on_message`.
    """

    on_message: Callable[[bytes], bool] | None
    turn: LoopTurn | None

    def send_nowait(self, message: bytes) -> bool:
        """Send one message without waiting and return True, or send nothing of it and return False."""
        ...

    async def send_many(self, messages: Iterable[bytes]) -> None:
        """Send messages in order, small ones in one write. Raises `OSError` if the client has gone or did not read in time."""
