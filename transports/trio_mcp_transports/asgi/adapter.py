"""Our application for other ASGI servers: requests made from ASGI messages, and responses sent as such.

The task of a request does both things that must happen while a call runs: it waits in `receive`, because that is the only way to
learn that the client has gone, and it sends what the call says. It waits inside a scope that the outbox cancels when it has
something (`AsgiClient`); so one task is enough, and everything that was said meanwhile goes out in one message.

Next to the messages of asgi.readthedocs.io (HTTP specification 2.1, WebSocket specification 2.3) it uses the extension
`websocket.http.response`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, MutableMapping
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any, Protocol, TypeAlias

import trio

from trio_mcp.protocol.http.sse import KEEP_ALIVE

from ..background import open_background
from .access import HttpRejection
from .exchange import SSE_HEADERS, expire
from .requests import Body, Expiry, Request
from .responses import (
    Binary,
    BrokenOff,
    HttpApp,
    KnownResponse,
    MessageSocket,
    OpenResponse,
    StreamPart,
    Upgrade,
)

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


async def serve_request(app: HttpApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve one HTTP request of an ASGI server."""
    request = request_of(scope, AsgiBody(receive))
    sending = Sending(send, is_head=request.method == "HEAD")
    try:
        response = await app.respond(request)
        if isinstance(response, OpenResponse):
            await send_open(response, AsgiClient(receive), sending)
        elif isinstance(response, KnownResponse):
            # The server may raise it in `send` once the client has gone.
            with suppress(OSError):
                await sending.whole(response)
    finally:
        if request.record is not None:
            request.record.end(sending.status, sending.size, is_complete=sending.is_complete)


async def serve_websocket(app: HttpApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve what asks for a WebSocket, to the end of that."""
    request = request_of(scope, AsgiBody(receive))
    request.websocket = list(scope["subprotocols"])
    status: int | None = None
    try:
        response = await app.respond(request)
        if isinstance(response, Upgrade):
            status = 101 if await serve_upgrade(response, receive, send) else None
        elif isinstance(response, KnownResponse):
            status = await reject_upgrade(scope, receive, send, response)
    finally:
        if request.record is not None:
            request.record.end(status, 0, is_complete=status is not None)


def request_of(scope: Scope, body: Body) -> Request:
    """Return a request as an ASGI server describes it."""
    client = scope.get("client")
    return Request(
        scope.get("method", "GET"),
        scope["path"],
        None,
        body,
        lines=scope["headers"],
        query=scope.get("query_string", b"").decode("latin-1"),
        root_path=scope.get("root_path", ""),
        scheme=SECURE.get(scope.get("scheme", "http"), "http"),
        client=None if client is None else (client[0], client[1]),
        # Where nothing is known of it, each request is alone.
        connection=object() if client is None else tuple(client),
    )


SECURE = {"https": "https", "wss": "https"}


class AsgiBody(Body):
    """The body of a request of an ASGI server."""

    __slots__ = ("_is_over", "_receive")

    def __init__(self, receive: Receive) -> None:
        super().__init__()
        self._receive = receive
        self._is_over = False

    async def receive(self) -> bytes:
        while not self._is_over:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise HttpRejection(400, "The body ended too early.")
            self._is_over = not message.get("more_body", False)
            chunk: bytes = message.get("body", b"")
            if chunk:
                return chunk
        return b""


class Sending:
    """A response that is sent as ASGI messages.

    Attributes:
        status: of it; None before it began.
        size: bytes of the body that were sent.
        is_complete: all of it was sent.
    """

    def __init__(self, send: Send, *, is_head: bool) -> None:
        self._send = send
        self._is_head = is_head
        self.status: int | None = None
        self.size = 0
        self.is_complete = False

    async def whole(self, response: KnownResponse) -> None:
        """Send a whole response. Raises `OSError` if the client has gone."""
        await self._start(response.status, response.head)
        await self._part(b"" if self._is_head or response.has_no_body else response.body, is_last=True)

    async def part(self, part: StreamPart) -> None:
        """Send a part of a stream. Raises `OSError` if the client has gone."""
        if part.headers is not None:
            await self._start(200, list(part.headers))
        await self._part(part.body, is_last=part.is_last)

    async def break_off(self) -> None:
        """Leave the response without its end, for which an ASGI server closes the connection.

        Raises:
            OSError: the client has gone.
        """
        # An answer, of whatever status, would say what became of the request; the server writes 500 for one that never began.
        if self.status is None:
            await self.part(StreamPart(SSE_HEADERS, KEEP_ALIVE, is_last=False))

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _part(self, body: bytes, *, is_last: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
        self.size += len(body)
        self.is_complete = is_last


class WaitingClient(Protocol):
    """The client of an open response, while there is nothing to send."""

    def wake(self) -> None:
        """End `wait`: there is something to send."""
        ...

    async def wait(self, seconds: float) -> bool:
        """Wait until `wake` is called, or for `seconds`; return False if the client has gone."""
        ...


class AsgiClient:
    """The client of an ASGI server."""

    __slots__ = ("_receive", "_waiting")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._waiting = trio.CancelScope()

    def wake(self) -> None:
        expire(self._waiting)

    async def wait(self, seconds: float) -> bool:
        with trio.CancelScope(deadline=trio.current_time() + seconds) as self._waiting:
            # Further parts of the body, if there are any, mean nothing here. A cancel of this wait loses no event.
            while (await self._receive())["type"] != "http.disconnect":
                pass
            return False
        return True


async def send_open(response: OpenResponse, client: WaitingClient, sending: Sending) -> None:
    """Send a response while its call runs, to its end, or until its client leaves. A cancel is the end of the client."""
    is_sent = False
    try:
        # A server without `authenticate` may have thousands of such streams, which then need no nursery.
        async with nullcontext() if response.expiry is None else ended_when_expired(response, response.expiry):
            # An ASGI server may raise it in `send` once the client has gone, and may then never report a disconnect.
            with suppress(OSError):
                is_sent = await sent_to_end(response, client, sending)
    finally:
        if is_sent:
            response.finish()
        else:
            response.lose()


@asynccontextmanager
async def ended_when_expired(response: OpenResponse, expiry: Expiry) -> AsyncGenerator[None]:
    """End the response when its credentials are no longer accepted, while the block runs."""

    async def end() -> None:
        await expiry()
        response.end_response()

    async with open_background() as nursery:
        nursery.start_soon(end)
        yield


async def sent_to_end(response: OpenResponse, client: WaitingClient, sending: Sending) -> bool:
    """Send a response; False if its client left before the end, or the rest cannot be had.

    Raises:
        OSError: `send` shows that the client has left.
    """
    # Each turn sends or waits, so this never spins.
    while not sending.is_complete:
        try:
            taken = await next_part(response, client, is_first=sending.status is None)
        except BrokenOff:
            await sending.break_off()
            return False
        if taken is None:
            return False
        await (sending.whole(taken) if isinstance(taken, KnownResponse) else sending.part(taken))
    return True


async def next_part(
    response: OpenResponse, client: WaitingClient, *, is_first: bool
) -> KnownResponse | StreamPart | None:
    """Wait for something to send, and take it; None if the client has gone."""
    is_silent = False
    silence = response.watch(client.wake)
    if silence is not None:
        try:
            if not await client.wait(silence):
                return None
        finally:
            is_silent = not response.is_ready
            response.stop_watching()
    known = response.take_known() if is_first and not is_silent else None
    if known is not None:
        return known
    taken = response.take_filler() if is_silent else response.take_part()
    return await response.wait_part() if taken is None else taken


async def serve_upgrade(upgrade: Upgrade, receive: Receive, send: Send) -> bool:
    """Accept a WebSocket, and serve it to its end; False if the client has gone meanwhile."""
    is_accepted = False
    try:
        if (await receive())["type"] == "websocket.connect":
            with suppress(OSError):
                accept = {"type": "websocket.accept", "subprotocol": upgrade.subprotocol, "headers": upgrade.headers}
                await send(accept)
                is_accepted = True
    finally:
        if not is_accepted:
            upgrade.lose()
    if is_accepted:
        await upgrade.serve(AsgiSocket(receive, send))
    return is_accepted


async def reject_upgrade(scope: Scope, receive: Receive, send: Send, response: KnownResponse) -> int:
    """Answer what asked for a WebSocket as any request, and never accept it; return the status.

    Where the server has no such extension, it is 403 without a sentence.
    """
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close"})
        return 403
    # The refused handshake always ends the connection, so a header of the same name would come twice.
    head = [(b"connection", b"close"), *(header for header in response.head if header[0] != b"connection")]
    await send({"type": "websocket.http.response.start", "status": response.status, "headers": head})
    await send({"type": "websocket.http.response.body", "body": response.body})
    return response.status


class AsgiSocket(MessageSocket):
    """A WebSocket of an ASGI server."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._max_message = 0

    def open(self, max_message: int, on_lost: Callable[[], None]) -> None:  # noqa: ARG002  `receive` says when it is over
        self._max_message = max_message

    async def receive_many(self) -> Iterable[bytes | Binary]:
        event = await self._receive()
        if event["type"] != "websocket.receive":
            return ()
        text = event.get("text")
        if text is None:
            return (Binary(event["bytes"]),)
        message: bytes = text.encode()
        if len(message) > self._max_message:
            await self.close(1009, f"a message may have {self._max_message} bytes")
            return ()
        return (message,)

    def send_nowait(self, message: bytes) -> bool:  # noqa: ARG002  it may always wait
        return False

    async def send_many(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            await self._send({"type": "websocket.send", "text": message.decode()})

    async def close(self, code: int, reason: str) -> None:
        await self._send({"type": "websocket.close", "code": code, "reason": reason})
