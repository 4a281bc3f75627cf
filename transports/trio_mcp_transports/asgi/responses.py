"""What the application answers: a whole response, a stream whose call may still run, or a WebSocket.

The application returns a response, and who serves it writes it: our own connection (`hypercorn/open_request.py`) from where
something is said, or the adapter for ASGI servers (`asgi/adapter.py`) in the task of the request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.errors import ProtocolError
from trio_mcp.protocol.jsonrpc import dump, error_response

from .access import Headers, HttpRejection
from .requests import Expiry, Request

JSON: Final = b"application/json"
WITHOUT_BODY: Final = frozenset({204, 304})


class Response:
    """The answer to a request.

    Attributes:
        headers: those that are added to what the kind of response has by itself.
    """

    __slots__ = ("headers",)

    def __init__(self, headers: Headers = ()) -> None:
        self.headers = headers

    def add_headers(self, headers: Headers) -> None:
        """Add headers; nothing of the response has been sent."""
        if headers:
            self.headers = [*self.headers, *headers]


@dataclass(slots=True, eq=False, repr=False)
class KnownResponse(Response):
    """A whole response.

    Args:
        content_type: of the body, if there is one; None if `headers` have it.
    """

    status: int
    body: bytes = b""
    headers: Headers = ()
    content_type: bytes | None = JSON

    @property
    def has_no_body(self) -> bool:
        """Whether responses of this status have none (RFC 9110, 15.3.5 and 15.4.5)."""
        return self.status in WITHOUT_BODY

    @property
    def head(self) -> list[tuple[bytes, bytes]]:
        """All headers."""
        head = [] if self.has_no_body else [(b"content-length", b"%d" % len(self.body))]
        head += self.headers
        if self.body and self.content_type is not None:
            head.append((b"content-type", self.content_type))
        if self.status == 503 and all(name != b"retry-after" for name, _ in self.headers):
            head.append((b"retry-after", b"1"))
        return head


def rejection_of(error: ProtocolError) -> KnownResponse:
    """Return a JSON-RPC error with the status of the rejection; 400 for a broken rule of JSON-RPC or MCP."""
    status, headers = (error.status, error.headers) if isinstance(error, HttpRejection) else (400, ())
    return KnownResponse(status, dump(error_response(error)), headers)


class StreamPart(NamedTuple):
    """A part of a response that is a stream.

    Attributes:
        headers: of the response, whose status is 200; None if an earlier part had them.
        is_last: nothing follows.
    """

    headers: Headers | None
    body: bytes
    is_last: bool


class BrokenOff(Exception):
    """The rest of a response cannot be had. Its connection is closed, which shows the client that it is not complete."""


class OpenResponse(Response):
    """The response to a request whose call may still run. Who sends it `watch`es it, again and again:

        there is something to send, at first          `take_known`; if that has nothing, as below
        there is something to send                    `take_part`; sent, `watch` again, or `finish` after the last
        nothing is to be sent for that long           `take_filler`, sent as a part
        they have nothing: it has to be waited for    `wait_part`, sent as a part
        its client leaves                             `lose`; not while `wait_part` is awaited

    It is no abstract class: what kind a response is, is asked for each, and would cost more.

    Attributes:
        expiry: awaited while it is open; then `end_response` is called. None if it ends by itself.
    """

    __slots__ = ("expiry",)

    def __init__(self) -> None:
        super().__init__()
        self.expiry: Expiry | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there is something to send, or nothing follows."""
        raise NotImplementedError

    def watch(self, on_ready: Callable[[], None]) -> float | None:
        """Register `on_ready`, which is called at least once when there is something to send.

        Returns the seconds without anything to send after which a filler is due; None, without registering, if there is
        something to send already.
        """
        raise NotImplementedError

    def stop_watching(self) -> None:
        """Undo `watch`."""
        raise NotImplementedError

    @property
    def is_complete(self) -> bool:
        """Whether nothing follows what is to be sent now."""
        raise NotImplementedError

    def take_known(self) -> KnownResponse | None:
        """Return the whole response; None if it is none, or none yet."""
        raise NotImplementedError

    def take_part(self) -> StreamPart | None:
        """Return what is to be sent now of a stream; None, and nothing is taken, if it has to be waited for."""
        raise NotImplementedError

    def take_filler(self) -> StreamPart | None:
        """Return what is to be sent after a silence; None, and nothing is taken, if it has to be waited for."""
        raise NotImplementedError

    async def wait_part(self) -> StreamPart:
        """Return what is to be sent now of a stream. After a cancel, nothing but `lose` may be called.

        Raises:
            BrokenOff: the rest cannot be had.
        """
        raise NotImplementedError

    def end_response(self) -> None:
        """End the response after what is being sent of it."""
        raise NotImplementedError

    def finish(self) -> None:
        """Note that all of it has been sent."""
        raise NotImplementedError

    def lose(self) -> None:
        """Note that the client has gone."""
        raise NotImplementedError


class Binary(NamedTuple):
    """A binary message of a WebSocket."""

    data: bytes


class MessageSocket(ABC):
    """A WebSocket as our application uses it once it is accepted.

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


class Upgrade(Response):
    """The request becomes a WebSocket.

    Args:
        subprotocol: one that the client has offered, or none.
        serve: called with the WebSocket when the upgrade was accepted; it is closed when this returns.
        lose: called in its place if the client has left before.
    """

    __slots__ = ("lose", "serve", "subprotocol")

    def __init__(
        self, subprotocol: str | None, serve: Callable[[MessageSocket], Awaitable[None]], lose: Callable[[], None]
    ) -> None:
        super().__init__()
        self.subprotocol = subprotocol
        self.serve = serve
        self.lose = lose


class HttpApp(ABC):
    """An application that is served by our own connection, without ASGI messages."""

    @abstractmethod
    async def respond(self, request: Request) -> Response:
        """Return the response to a request, which is sent behind the back of the application.

        It is awaited by the reader of the connection, which it keeps from reading on. A cancel leaves nothing.
        """
