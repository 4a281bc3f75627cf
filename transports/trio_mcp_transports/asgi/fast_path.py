"""What our own server offers next to ASGI messages: the fast path of a WebSocket, and the events of a request without a wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, Protocol

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


class RequestEvents:
    """The ASGI events of a request, for an application that need not cancel its `receive` to stop waiting."""

    __slots__ = ()

    def whole_body(self) -> bytes | None:
        """Return the body if all of it has arrived; None, and nothing is taken, if there is more to come."""
        raise NotImplementedError

    async def wait_disconnect(self) -> bool:
        """Wait until the client has gone, and drop what else it sends; False if `stop_waiting` was called first."""
        raise NotImplementedError

    def stop_waiting(self) -> None:
        """End a `wait_disconnect` that is in progress."""
        raise NotImplementedError


def events_of(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> RequestEvents | None:
    """Return the events that `receive` gives out; None under another server, or where a middleware has its own `receive`."""
    owner = getattr(receive, "__self__", None)
    return owner if isinstance(owner, RequestEvents) else None
