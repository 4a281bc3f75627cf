"""The server's end of a WebSocket as a channel, and all of them that are open.

A WebSocket is one shared channel, as a pipe is: both eras are spoken on it message by message, cancelling is a message, and its
end is the end of everything that runs for it (architecture.md 5). Reading never waits for a tool. It waits for a client that
does not read its own answers; what such a client sends meanwhile waits in the network.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from trio_mcp.base.shared_limits import WEBSOCKETS
from trio_mcp.http import HttpLimits
from trio_mcp.protocol.jsonrpc import dump
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.session import Envelope, MessageChannel, Peer, Received, Service, received, serve_channel
from trio_mcp.session.channel import OVER_WEBSOCKET
from trio_mcp.session.envelope import SESSION_SIZE, sent_size

from ..asgi.requests import AuthorizedRequest, Expiry, check_room
from ..asgi.responses import Binary, MessageSocket, Upgrade
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
        self._open: dict[WebSocketChannel, None] = {}
        self._all_closed: trio.Event | None = None

    def upgrade(self, incoming: AuthorizedRequest) -> Upgrade:
        """Return what serves a WebSocket, which counts from now on.

        Raises:
            HttpRejection: 503, there are too many, or the memory budget has no room.
        """
        account = self._service.open_account(incoming.peer)
        self.quota.admit(account)
        check_room(account, SESSION_SIZE)
        # Counted before the first await, or a burst of upgrades would all find room.
        self.quota.add(account.caller)
        lose = partial(self.quota.give_back, account.caller)
        return Upgrade(SUBPROTOCOL, partial(self._serve, incoming.peer, incoming.expiry, account.caller), lose)

    async def _serve(self, peer: Peer, expiry: Expiry | None, caller: Hashable | None, socket: MessageSocket) -> None:
        """Serve a WebSocket that was accepted, to its end."""
        channel = WebSocketChannel(socket, peer, self._limits)
        self._open[channel] = None
        try:
            async with open_background() as nursery:
                if expiry is not None:
                    nursery.start_soon(_close_when_expired, channel, expiry)
                await serve_channel(self._service, channel)
        finally:
            del self._open[channel]
            self.quota.give_back(caller)
            if self._all_closed is not None and not self._open:
                self._all_closed.set()

    def close_idle(self) -> None:
        """Close those with 1001 on which no request waits for its reply."""
        for channel in list(self._open):
            if not channel.is_busy():
                channel.end(CLOSE_GOING_AWAY)

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


async def _close_when_expired(channel: WebSocketChannel, expiry: Expiry) -> None:
    await expiry()
    await channel.close(CLOSE_EXPIRED)


class WebSocketChannel(MessageChannel):
    """One accepted WebSocket.

    Args:
        peer: its client.
        limits: of one message.
    """

    network = OVER_WEBSOCKET

    def __init__(self, socket: MessageSocket, peer: Peer, limits: JsonLimits) -> None:
        self.peer = peer
        self._limits = limits
        self._socket = socket
        self._ending: Close | None = None
        self._closed = False
        socket.open(limits.max_bytes, self._lose)

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
