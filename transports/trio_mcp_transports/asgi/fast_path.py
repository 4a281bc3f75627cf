"""What our own server offers next to ASGI messages: a WebSocket without them, and the events of a request without a wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, NamedTuple

WEBSOCKET_KEY: Final = "trio_mcp.websocket"
"""The key of a `MessageSocket` in the `state` of a scope."""


class Binary(NamedTuple):
    """A binary message of a WebSocket."""

    data: bytes


class MessageSocket(ABC):
    """A WebSocket as our application uses it once it is accepted.

    Our own server has one for the application in the scope, where no middleware is between them.

    Attributes:
        writes_at_once: `send_nowait` may succeed.
    """

    writes_at_once: bool = False

    @abstractmethod
    def open(self, max_message: int, on_lost: Callable[[], None]) -> None:
        """Prepare for the first `receive`.

        Args:
            max_message: bytes that a message may have, if the server does not allow fewer; a larger one is closed with 1009.
            on_lost: called when the connection is over.
        """

    @abstractmethod
    async def receive_many(self) -> Iterable[bytes | Binary]:
        """Wait for a message; return it and others that came with it, texts as UTF-8. Empty once the connection is over.

        Those that are not iterated over before the next call, or when it is cancelled, are returned by that. Nothing else reads
        the connection: pings are answered, and the client's close frame is noticed, while this is awaited.
        """

    @abstractmethod
    def send_nowait(self, message: bytes) -> bool:
        """Send one text without waiting and return True, or send nothing of it and return False."""

    @abstractmethod
    async def send_many(self, messages: Iterable[bytes]) -> None:
        """Send texts in order, small ones in one write. Raises `OSError` if the client has gone or did not read in time."""

    @abstractmethod
    async def close(self, code: int, reason: str) -> None:
        """Send a close frame, unless the client has gone."""


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
