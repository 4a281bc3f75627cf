"""The few ASGI messages that this transport speaks (asgi.readthedocs.io, HTTP specification 2.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Hashable, Iterable, MutableMapping, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeAlias

import trio

from trio_mcp.errors import LimitExceeded, ProtocolError
from trio_mcp.protocol.jsonrpc import SERVER_BUSY, dump, error_response
from trio_mcp.runtime import Account
from trio_mcp.session import Peer

from .access import HttpRejection
from .authentication import Expiry

# What our own server offers next to ASGI messages: a WebSocket without them, and the events of a request without a wait.

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


Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]
Respond: TypeAlias = Callable[[], Awaitable[None]]
"""Sends the response to a message that has been processed, and all that is said before."""


CONNECTION_KEY: Final = "trio_mcp.connection"
"""The key of what tells a connection from others in the `state` of a scope; another ASGI server has no such key."""


def connection_of(scope: Scope) -> Hashable:
    """Return what tells the connection of a request from others: an object under our own server, else the client's address.

    For a request that came through a trusted proxy it is the address of the client that this names.
    """
    own: Hashable | None = scope.get("state", {}).get(CONNECTION_KEY)
    if own is not None:
        return own
    client = scope.get("client")
    # Where nothing is known of it, each request is alone.
    return object() if client is None else tuple(client)


def root_of(scope: Scope) -> str:
    """Return the path below which the application is mounted, without a slash at its end; empty at the top."""
    root: str = scope.get("root_path", "")
    return root.rstrip("/")


def route_of(scope: Scope) -> str:
    """Return the path of a request below the one where the application is mounted.

    `path` begins with `root_path` (asgi.readthedocs.io, HTTP specification), except where a proxy has removed it and only
    hypercorn's setting `root_path` names it.
    """
    path: str = scope["path"]
    root = root_of(scope)
    if root and path.startswith(root) and path[len(root) :][:1] in ("", "/"):
        return path[len(root) :] or "/"
    return path


def routes_of(scope: Scope) -> tuple[str, ...]:
    """Return the paths that a request may mean: below the root, and as it is, where both may be a path of the application."""
    # Mounted at `/mcp` by what removes the prefix, the application serves `/mcp/mcp` as `/mcp`.
    below, path = route_of(scope), scope["path"]
    return (below,) if below == path else (below, path)


class AuthorizedRequest(NamedTuple):
    """A request whose sender may call; nothing of its body has been read.

    Attributes:
        expiry: of the credentials of an open connection; None without authentication.
    """

    scope: Scope
    receive: Receive
    send: Send
    peer: Peer
    expiry: Expiry | None = None


def check_room(account: Account, size: int, peak: int = 0) -> None:
    """Raise `HttpRejection` (503) unless the memory budget has room for these bytes.

    Args:
        peak: the bytes that they are at a time, within one step.
    """
    try:
        account.check(size)
        if peak:
            account.check_step(peak)
    except LimitExceeded as error:
        # The connection is closed: what is still to come has no room either.
        raise HttpRejection(503, str(error), [(b"connection", b"close")], code=SERVER_BUSY) from None


async def read_body(receive: Receive, limit: int, seconds: float, announced: str | None, account: Account) -> bytes:
    """The whole body of a request.

    Args:
        announced: the `Content-Length` of the request.
        account: counts what has arrived of it.

    Raises:
        HttpRejection: 413 over `limit` bytes, 408 after `seconds`, 400 when the client went away in the middle, 503 when the
            memory budget has no room for it.
    """
    # Told before a byte is read. Twenty digits are more than any size, and `int` of many digits is slow.
    length = int(announced) if announced is not None and announced.isdigit() and len(announced) < 20 else 0
    if length > limit:
        raise too_large(limit)
    # A scope with a time limit costs as much as to read a small body, and nearly every body came with its head. It is counted
    # by the connection's fixed cost, and by the caller.
    events = events_of(receive)
    whole = None if events is None else events.whole_body()
    if whole is not None:
        if len(whole) > limit:
            raise too_large(limit)
        return whole
    check_room(account, length)
    # Not a list of chunks: joined, they would be there twice, and leave holes in the heap as large as they were.
    body = BytesIO()
    size = 0
    with trio.move_on_after(seconds):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HttpRejection(400, "The body ended too early.")
            chunk: bytes = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
            if size == len(chunk) and not message.get("more_body", False):
                return chunk
            check_room(account, len(chunk))
            account.draw(len(chunk))
            body.write(chunk)
            if not message.get("more_body", False):
                # Without a copy: it is the bytes that were written to, cut to their length.
                return body.getvalue()
    raise HttpRejection(408, f"The body did not arrive within {seconds:g} seconds.", [(b"connection", b"close")])


def too_large(limit: int) -> HttpRejection:
    """Return the rejection of a body over the limit, in bytes."""
    # The connection is closed: the rest of the body may be without end, and is not read.
    return HttpRejection(413, f"A message has at most {limit} bytes.", [(b"connection", b"close")])


async def respond(
    send: Send,
    status: int,
    body: bytes = b"",
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send a whole response."""
    await send({"type": "http.response.start", "status": status, "headers": head_of(status, body, headers)})
    await send({"type": "http.response.body", "body": body})


def head_of(status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers of a whole response."""
    head = [(b"content-length", str(len(body)).encode()), *headers]
    if body:
        head.append((b"content-type", b"application/json"))
    if status == 503:
        head.append((b"retry-after", b"1"))
    return head


async def send_error(send: Send, error: ProtocolError) -> None:
    """Answer a request with a JSON-RPC error, and with the status of the rejection; 400 for a broken rule of JSON-RPC or MCP."""
    status, headers = (error.status, error.headers) if isinstance(error, HttpRejection) else (400, ())
    await respond(send, status, dump(error_response(error)), headers)


async def send_or_reject(respond: Respond, send: Send) -> None:
    """Send a response, or the error that comes in its place."""
    try:
        await respond()
    except ProtocolError as error:
        await send_error(send, error)


async def reject_upgrade(scope: Scope, receive: Receive, send: Send, rejection: HttpRejection) -> None:
    """Answer what asked for a WebSocket as any request (the extension `websocket.http.response`), and never accept it.

    Where the server has no such extension, it is 403 without a sentence.
    """
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})
        return
    body = dump(error_response(rejection))
    # The refused handshake always ends the connection, so a header of the same name would come twice.
    others = (header for header in rejection.headers if header[0] != b"connection")
    head = head_of(rejection.status, body, [(b"connection", b"close"), *others])
    await send({"type": "websocket.http.response.start", "status": rejection.status, "headers": head})
    await send({"type": "websocket.http.response.body", "body": body})
