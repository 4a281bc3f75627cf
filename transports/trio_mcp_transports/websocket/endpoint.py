"""The server's end of a WebSocket: the exchange that ASGI calls `websocket` as a channel, and all of them that are open.

A WebSocket is one shared channel, as a pipe is: both eras are spoken on it message by message, cancelling is a message, and its
end is the end of everything that runs for it (architecture.md 5). Reading never waits for a tool. It waits for a client that
does not read its own answers; what such a client sends meanwhile waits in the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import trio

from trio_mcp.base.shared_limits import WEBSOCKETS
from trio_mcp.http import HttpLimits
from trio_mcp.protocol.jsonrpc import dump
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.session import Envelope, MessageChannel, Received, Service, received, serve_channel
from trio_mcp.session.envelope import sent_size

from ..asgi.authentication import Expiry
from ..asgi.messages import WEBSOCKET_KEY, AuthorizedRequest, Binary, MessageSocket, Receive, Send
from ..asgi.sessions import HttpQuota
from ..background import open_background
from .close_codes import CLOSE_BINARY, CLOSE_EXPIRED, CLOSE_GOING_AWAY, SUBPROTOCOL, Close

CLOSE_TIMEOUT: Final = 1.0
"""Seconds that sending a close frame may take."""

DRAIN_SECONDS: Final = 1.0
"""Seconds that open WebSockets have for their last messages and their close frames, when all calls have ended."""


class WebSockets:
    """The open WebSockets of one application.

    Attributes:
        quota: for WebSockets; one that is served counts.
    """

    def __init__(self, service: Service, limits: HttpLimits) -> None:
        self._service = service
        self._limits = JsonLimits(max_bytes=limits.body, max_values=limits.values)
        self.quota = HttpQuota(WEBSOCKETS, limits.websockets, limits.per_principal)
        self._open: dict[AsgiWebSocket, None] = {}
        self._all_closed: trio.Event | None = None

    async def serve(self, incoming: AuthorizedRequest) -> None:
        """Accept what asked for an upgrade, and serve it to its end."""
        channel = AsgiWebSocket(incoming, self._limits)
        # Counted before the first await, or a burst of upgrades would all find room.
        self._open[channel] = None
        caller = self._service.open_account(incoming.peer).caller
        self.quota.add(caller)
        try:
            if not await channel.accept():
                return
            async with open_background() as nursery:
                if incoming.expiry is not None:
                    nursery.start_soon(_close_when_expired, channel, incoming.expiry)
                await serve_channel(self._service, channel)
        finally:
            del self._open[channel]
            self.quota.give_back(caller)
            if self._all_closed is not None and not self._open:
                self._all_closed.set()

    async def close(self) -> None:
        """Close each of them with 1001 when what was said to it has been written, and wait for that."""
        # A copy, since each removes itself when it ends.
        for channel in list(self._open):
            channel.end(CLOSE_GOING_AWAY)
        if self._open:
            self._all_closed = trio.Event()
            await self._all_closed.wait()


MOST_AT_ONCE: Final = 1 << 16
"""Bytes of a message that may be sent without waiting. A larger one would be copied for it, and the kernel take a part of it."""


def _dumped(values: Sequence[Envelope]) -> Iterator[bytes]:
    """Make each message into text when its turn comes; of a list, the message is removed first and not kept."""
    if not isinstance(values, list):
        yield from (dump(value.message) for value in values)
        return
    values.reverse()
    while values:
        yield dump(values.pop().message)


async def _close_when_expired(channel: AsgiWebSocket, expiry: Expiry) -> None:
    await expiry()
    await channel.close(CLOSE_EXPIRED)


class AsgiWebSocket(MessageChannel):
    """One accepted WebSocket.

    Args:
        incoming: the request for it, whose first event (`websocket.connect`) was not received yet.
        limits: of one message.
    """

    def __init__(self, incoming: AuthorizedRequest, limits: JsonLimits) -> None:
        scope, self._receive, self._send, self.peer, _ = incoming
        self._limits = limits
        self._socket: MessageSocket = scope.get("state", {}).get(WEBSOCKET_KEY) or AsgiSocket(self._receive, self._send)
        self._ending: Close | None = None
        self._closed = False

    async def accept(self) -> bool:
        """Answer the upgrade; False when the client has gone meanwhile."""
        if (await self._receive())["type"] != "websocket.connect":
            return False
        self._socket.open(self._limits.max_bytes, self._lose)
        with suppress(OSError):
            await self._send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL, "headers": []})
            return True
        return False

    async def receive(self) -> Envelope[Received]:
        """The next message; `Envelope(Malformed(...))` for text that is none. A cancel loses nothing.

        A binary frame, and a message over the limit, close the connection.

        Raises:
            trio.EndOfChannel: the client has gone or broke the framing, or `end` was called.
            trio.ClosedResourceError: this end was closed.
        """
        return next(iter(await self.receive_many()))

    async def receive_many(self) -> Iterable[Envelope[Received]]:
        if self._closed:
            raise trio.ClosedResourceError("this WebSocket was closed")
        if self._ending is not None:
            # The close frame is sent by `aclose`.
            raise trio.EndOfChannel
        messages = await self._socket.receive_many()
        if not messages:
            self._closed = True
            raise trio.EndOfChannel
        return map(self._read, messages)

    def _read(self, message: bytes | Binary) -> Envelope[Received]:
        if isinstance(message, Binary):
            # MCP messages are text frames; 1003 says that this kind of data is not accepted (RFC 6455, 7.4.1).
            self.end(CLOSE_BINARY)
            raise trio.EndOfChannel
        return received(message, self._limits, self.peer)

    async def send(self, value: Envelope) -> None:
        """Send one message; see `send_many`."""
        await self.send_many((value,))

    async def send_many(self, values: Sequence[Envelope]) -> None:
        """Send several messages in order. Under our own server a cancel in the middle of a frame waits for its end.

        Raises:
            trio.BrokenResourceError: the client has gone, or did not read in time.
            trio.ClosedResourceError: this end was closed.
        """
        if self._closed:
            raise trio.ClosedResourceError("this WebSocket was closed")
        try:
            await self._socket.send_many(_dumped(values))
        except OSError as error:
            self._closed = True
            raise trio.BrokenResourceError(str(error)) from error

    def send_nowait(self, value: Envelope) -> bool:
        """Send one message at once, where the server offers that; False when it was not sent."""
        if self._closed or not self._socket.writes_at_once or sent_size(value) > MOST_AT_ONCE:
            return False
        return self._socket.send_nowait(dump(value.message))

    def end(self, close: Close) -> None:
        """Come to an end in order: nothing more is received, and `aclose` sends this. The first reason stays."""
        if self._ending is None:
            self._ending = close
        self._stop_receiving()

    async def close(self, close: Close) -> None:
        """Send a close frame at once, within a bound, and end: what was not sent yet is lost."""
        self.end(close)
        await self.aclose()

    async def aclose(self) -> None:
        """Close in order, with the reason given to `end`; bounded, also when cancelled."""
        if not self._closed:
            self._closed = True
            # Nothing was said by `end`: the server is being cut.
            code, reason = self._ending or CLOSE_GOING_AWAY
            with trio.move_on_after(CLOSE_TIMEOUT, shield=True), suppress(OSError):
                await self._socket.close(code, reason)
        await trio.lowlevel.checkpoint()

    def _lose(self) -> None:
        self._closed = True
        self._stop_receiving()

    def _stop_receiving(self) -> None:
        if self.stop_reading is not None:
            self.stop_reading()


class AsgiSocket(MessageSocket):
    """A WebSocket whose messages are ASGI messages: under another server, and behind a middleware."""

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
