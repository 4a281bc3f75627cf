"""The few ASGI messages that this transport speaks (asgi.readthedocs.io, HTTP specification 2.1)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import trio

from trio_mcp.protocol.jsonrpc import INVALID_REQUEST, ErrorDetail, ErrorResponse, dump
from trio_mcp.session import Peer

from .access import HttpRejection

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]


class AuthorizedRequest(NamedTuple):
    """A request whose sender may call; nothing of its body has been read."""

    scope: Scope
    peer: Peer
    receive: Receive
    send: Send


async def read_body(receive: Receive, limit: int, seconds: float, announced: str | None) -> bytes:
    """The whole body of a request.

    Raises:
        HttpRejection: 413 over `limit` bytes, 408 after `seconds`, 400 when the client went away in the middle.
    """
    # The connection is closed: the rest of the body may be without end, and is not read.
    too_large = HttpRejection(413, f"A message has at most {limit} bytes.", [(b"connection", b"close")])
    # Told before a byte is read. Twenty digits are more than any size, and `int` of many digits is slow.
    if announced is not None and announced.isdigit() and len(announced) < 20 and int(announced) > limit:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    with trio.move_on_after(seconds):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise HttpRejection(400, "The body ended too early.")
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > limit:
                raise too_large
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    raise HttpRejection(408, f"The body did not arrive within {seconds:g} seconds.", [(b"connection", b"close")])


async def respond(
    send: Send,
    status: int,
    body: bytes = b"",
    headers: Iterable[tuple[bytes, bytes]] = (),
    kind: bytes = b"application/json",
) -> None:
    """Send a whole response."""
    head = [(b"content-length", str(len(body)).encode()), *headers]
    if body:
        head.append((b"content-type", kind))
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


async def send_rejection(send: Send, rejection: HttpRejection) -> None:
    """Answer a request with a status, and with its sentence in a JSON-RPC error."""
    await respond(send, rejection.status, error_of(rejection), rejection.headers)


async def reject_upgrade(scope: Scope, receive: Receive, send: Send, rejection: HttpRejection) -> None:
    """Answer what asked for a WebSocket as any request (the extension `websocket.http.response`), and never accept it.

    Where the server has no such extension, it is 403 without a sentence.
    """
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})
        return
    body = error_of(rejection)
    head = [
        (b"content-length", str(len(body)).encode()),
        (b"content-type", b"application/json"),
        (b"connection", b"close"),
        # The refused handshake always ends the connection, so a header of the same name would come twice.
        *(header for header in rejection.headers if header[0] != b"connection"),
    ]
    await send({"type": "websocket.http.response.start", "status": rejection.status, "headers": head})
    await send({"type": "websocket.http.response.body", "body": body})


def error_of(rejection: HttpRejection) -> bytes:
    return dump(ErrorResponse(rejection.request_id, ErrorDetail(INVALID_REQUEST, str(rejection))))
