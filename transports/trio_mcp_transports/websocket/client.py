"""The client's end of a WebSocket, on trio-websocket: a channel with one message per text frame.

Two tasks belong to a connection. One always reads, into a bounded inbox, so that the server's pings and its close are seen
even if no task receives. The other writes, so that a cancelled `send` never leaves half a frame behind. An error of the library
in either ends the connection, and is raised by `receive` and `send`.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final, cast

import trio
from trio_websocket import CloseReason, ConnectionClosed, WebSocketConnection

from trio_mcp.base.logs import peer_logger
from trio_mcp.base.named_tuples import NamedTuple
from trio_mcp.base.values import shown_url
from trio_mcp.errors import Disconnected, RequestRejected, ServerBusy
from trio_mcp.protocol.http.headers import seconds_to_wait
from trio_mcp.protocol.json_limits import CLIENT_LIMITS
from trio_mcp.protocol.jsonrpc import SERVER_BUSY, Request, RequestId, Unanswered, dump, parse
from trio_mcp.session import Envelope, MessageChannel, Received
from trio_mcp.session.channel import OVER_WEBSOCKET, address_of
from trio_mcp.session.transport import AnyAuth, HeaderSource, ServerCredentials

from ..background import open_background
from ..connecting import BUSY, HeadersFailed, current_headers, open_credentials
from .close_codes import CLOSE_BINARY, Close
from .handshake import Address, HandshakeRejected, LimitedStream, error_text, open_socket, open_wire

logger = peer_logger("trio_mcp.websocket")

MAX_MESSAGE: Final = CLIENT_LIMITS.max_bytes
CONNECT_TIMEOUT: Final = 10.0
WRITE_DEADLINE: Final = 10.0
PING_INTERVAL: Final = 20.0
CLOSE_TIMEOUT: Final = 2.0

INBOX: Final = 256
"""Messages that wait for a slow receiver; then the server waits."""

TOO_BIG: Final = 1009
"""The close code for a message that is over a limit."""

NORMAL: Final = (1000, 1001)
"""Close codes that say nothing went wrong: done, and going away."""

FRAME_OVERHEAD: Final = 64 * 1024
"""Bytes of frame heads, pings and beginnings of the next message that may come with one message, and as much again as it has."""


@asynccontextmanager
async def connect(
    url: str,
    *,
    headers: HeaderSource | None = None,
    auth: AnyAuth | None = None,
    connect_timeout: float = CONNECT_TIMEOUT,
    write_deadline: float = WRITE_DEADLINE,
    ping_interval: float = PING_INTERVAL,
    max_message: int = MAX_MESSAGE,
    tls: ssl.SSLContext | None = None,
) -> AsyncGenerator[WebSocketChannel]:
    """Open a channel to the MCP endpoint at a `ws://` or `wss://` URL; leaving the block closes it, in two seconds at most.

    Args:
        headers: sent with the request that opens the connection, for example `{"authorization": "Bearer ..."}`; or a function
            that returns them, called for each connection.
        auth: how the client authenticates, as over HTTP but for an `httpx2.Auth`; a login takes place before the connection is
            open.
        connect_timeout: seconds to connect and complete the handshake.
        write_deadline: seconds that the server may take to read one message.
        ping_interval: seconds without data after which the server is pinged; after as many more, the connection is closed.
        max_message: the maximum size of one message of the server, in bytes.
        tls: the trusted certificates for `wss`; by default those of the system.

    Raises:
        Disconnected: the server was not reached, or rejected the connection; the message has its status and reason.
        ServerBusy: it answered 429 or 503.
        AuthorizationError: the login failed.
        ValueError: the URL is not valid.
    """
    opening = Opening(Address.of(url), url, headers, connect_timeout, tls)
    async with open_credentials(auth, url, connect_timeout) as credentials, open_background() as nursery:
        made = partial(WebSocketChannel, nursery, max_message, write_deadline)
        channel = await opening.authorized(made, cast("ServerCredentials | None", credentials))
        try:
            nursery.start_soon(channel.keep_alive, ping_interval)
            yield channel
        finally:
            await channel.aclose()


class Opening(NamedTuple):
    """How a connection is opened."""

    address: Address
    url: str
    headers: HeaderSource | None
    seconds: float
    tls: ssl.SSLContext | None

    async def authorized(
        self, made: Callable[[], WebSocketChannel], credentials: ServerCredentials | None
    ) -> WebSocketChannel:
        """Return an open channel; try again with other credentials if the server rejects the connection for want of them.

        Args:
            made: returns a channel that is not open.

        Raises:
            Disconnected, ServerBusy, AuthorizationError: there is no connection.

        A cancel leaves nothing open.
        """
        attempts = None if credentials is None else credentials.attempts("GET", self.url)
        rejection: HandshakeRejected | None = None
        while rejection is None or (attempts and await attempts.retry(rejection.status, rejection.headers)):
            await trio.lowlevel.checkpoint()
            try:
                # Without the limit of the connection: a login may take minutes.
                own = {} if attempts is None else await attempts.headers()
                return await self._open(made(), own)
            except HandshakeRejected as error:
                rejection = error
            except (OSError, HeadersFailed) as error:
                raise Disconnected(f"{shown_url(self.url)}: {error_text(error)}") from error
        why = f"{shown_url(self.url)}: {rejection}"
        if rejection.status in BUSY:
            wait = seconds_to_wait(rejection.headers, time.time())
            raise ServerBusy(rejection.status, wait, SERVER_BUSY, why) from rejection.__cause__
        raise Disconnected(why) from rejection.__cause__

    async def _open(self, channel: WebSocketChannel, own: Mapping[str, str]) -> WebSocketChannel:
        """Open a channel; it is closed again if that fails."""
        channel.network = {**OVER_WEBSOCKET, **address_of(self.url)}
        try:
            with trio.move_on_after(self.seconds):
                given = await current_headers(self.headers)
                await channel.open(self.address, {**given, **own}, self.tls)
            if not channel.is_open:
                raise Disconnected(f"{shown_url(self.url)}: it did not open within {self.seconds:g} seconds")
        except BaseException:
            await channel.aclose()
            raise
        return channel


class PendingWrite(NamedTuple):
    """Messages on their way to the server, and what is set when they have been written, or never will be."""

    texts: Sequence[str]
    done: trio.Event


class WebSocketChannel(MessageChannel):
    """One connection to a server; made by `connect`."""

    def __init__(self, nursery: trio.Nursery, max_message: int, write_deadline: float) -> None:
        self._nursery = nursery
        self._limits = replace(CLIENT_LIMITS, max_bytes=max_message)
        self._write_deadline = write_deadline
        self._unread = f"the server did not read for {write_deadline:g} s"
        self._socket: WebSocketConnection | None = None
        self._wire: LimitedStream | None = None
        self._inbox: deque[tuple[Envelope[Received], int]] = deque()
        self._held = 0
        self._changed = trio.Event()
        # Of size 0, so that `send` waits for the writer: a slow server slows its senders down.
        self._to_write, self._written = trio.open_memory_channel[PendingWrite](0)
        self._ended_because: str | None = None
        """Why the connection has ended, when it has."""
        self._broken = False
        self._closed = False
        self._pinging = False
        self._largest: tuple[int, RequestId | None] = (0, None)
        """The bytes of the largest message that was sent, and its id if it is a request."""

    # life

    async def open(self, address: Address, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> None:
        """Connect; `connect` calls it, and closes the channel after an error or a cancel too.

        Raises:
            OSError: the server was not reached.
            HandshakeRejected: it did not want to.
        """
        wire = self._wire = await open_wire(address, tls)
        # The wire has the limit too, because the library writes pongs and close frames from its own reader.
        wire.write_deadline = self._write_deadline
        socket = await open_socket(self._nursery, wire, address, headers, self._limits.max_bytes, self._failed)
        self._socket = socket
        # Before the handshake a small allowance counts; from here on it is a message at a time.
        self._replenish(wire)
        self._nursery.start_soon(self._read, socket)
        self._nursery.start_soon(self._write, socket)

    @property
    def is_open(self) -> bool:
        """It has been opened, and nothing has ended it."""
        return self._socket is not None and self._ended_because is None and not self._closed

    @property
    def close_reason(self) -> str | None:
        """With which words the server closed the connection, for messages; None while it has not."""
        return self._ended_because

    async def keep_alive(self, interval: float) -> None:
        """Ping a silent server, and end the connection when it stays silent; `connect` runs it."""
        wire = self._wire
        assert wire is not None
        while not self._closed and self._ended_because is None:
            await trio.sleep(interval)
            silent = trio.current_time() - wire.last_received_at
            # While the inbox is full nothing is read, on purpose. The server is not silent then.
            if not wire.reading or silent < interval:
                continue
            # First of all a ping: a tick may come just before the interval is over, and the next one just after two of them.
            if not self._pinging:
                # In a task and only one at a time: a ping waits for its pong, and the silence is measured here.
                self._pinging = True
                self._nursery.start_soon(self._ping)
            elif silent >= 2 * interval:
                self._failed(f"the server was silent for {silent:.0f} s, and answered no ping")

    async def aclose(self) -> None:
        """Close in order, with code 1000; bounded, also when cancelled. What waits here gets `ClosedResourceError`."""
        if not self._closed:
            self._closed = True
            self._notify()
            # The closing handshake waits for the server's close frame, which may never come.
            with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
                if self._socket is not None and self._ended_because is None:
                    await self._socket.aclose()
            if self._wire is not None:
                await trio.aclose_forcefully(self._wire)
        await trio.lowlevel.checkpoint()

    # messages

    async def receive(self) -> Envelope[Received]:
        """The next message; `Envelope(Malformed(...))` for text that is none. A cancel loses nothing.

        Raises:
            trio.EndOfChannel: the server closed the connection, and everything it had sent was received.
            trio.BrokenResourceError: it broke; the text says how, with the server's close code if there was one.
            trio.ClosedResourceError: this channel was closed.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        while not self._inbox:
            if self._closed:
                raise trio.ClosedResourceError("this channel was closed")
            if self._ended_because is not None:
                raise trio.BrokenResourceError(self._ended_because) if self._broken else trio.EndOfChannel
            await self._changed.wait()
        envelope, size = self._inbox.popleft()
        self._held -= size
        self._notify()
        return envelope

    async def send(self, value: Envelope) -> None:
        """Send one message; see `send_many`."""
        await self.send_many((value,))

    async def send_many(self, values: Sequence[Envelope]) -> None:
        """Send several messages in order. A cancel in the middle leaves the rest to the channel: each goes out whole.

        Raises:
            trio.BrokenResourceError: the connection has ended; the text says why.
            trio.ClosedResourceError: this channel was closed.
        """
        messages = [dump(value.message) for value in values]
        self._check_sendable()
        self._note_largest(values, messages)
        writing = PendingWrite([message.decode() for message in messages], trio.Event())
        try:
            await self._to_write.send(writing)
        except trio.BrokenResourceError:
            self._check_sendable()
            raise
        # A cancel here leaves the message with the writer, which sends it whole. Half a frame would end the connection.
        await writing.done.wait()
        self._check_sendable()

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._ended_because or "open"
        return f"<WebSocketChannel {state}, {len(self._inbox)} waiting>"

    # one step each

    def _check_sendable(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this channel was closed")
        if self._ended_because is not None:
            raise trio.BrokenResourceError(self._ended_because)

    async def _read(self, socket: WebSocketConnection) -> None:
        """Read until the end, whatever happens to what was read."""
        assert self._wire is not None
        try:
            while True:
                received = await socket.get_message()
                self._replenish(self._wire)
                if isinstance(received, bytes):
                    await self._refuse(socket, CLOSE_BINARY)
                    return
                # The library counts characters; the limit is in bytes.
                data = received.encode()
                if len(data) > self._limits.max_bytes:
                    await self._refuse(socket, Close(TOO_BIG, f"a message may have {self._limits.max_bytes} bytes"))
                    return
                self._inbox.append((Envelope(parse(data, self._limits), size=len(data)), len(data)))
                self._held += len(data)
                self._notify()
                # Not reading is the back-pressure: the socket fills, and the server waits. Pings wait too, which
                # `keep_alive` allows for.
                while len(self._inbox) >= INBOX or self._held > self._limits.max_bytes:
                    await self._changed.wait()
        except ConnectionClosed as error:
            self._ended(error.reason)

    async def _write(self, socket: WebSocketConnection) -> None:
        """Write what is handed over, one after the other, each within the deadline."""
        async with self._written:
            async for texts, done in self._written:
                try:
                    for text in texts:
                        with trio.fail_after(self._write_deadline):
                            await socket.send_message(text)
                except ConnectionClosed as error:
                    self._ended(error.reason)
                except trio.TooSlowError:
                    self._failed(self._unread)
                finally:
                    # Also after a failure: the sender looks at the state of the channel itself.
                    done.set()
                if self._ended_because is not None:
                    return

    async def _ping(self) -> None:
        assert self._socket is not None
        try:
            await self._socket.ping()
        except ConnectionClosed as error:
            self._ended(error.reason)
        finally:
            self._pinging = False

    async def _refuse(self, socket: WebSocketConnection, close: Close) -> None:
        self._end(f"it was closed with {close.code}: {close.reason}", broken=True)
        with trio.move_on_after(CLOSE_TIMEOUT):
            await socket.aclose(close.code, close.reason)

    def _ended(self, reason: CloseReason | None) -> None:
        """The library says that the connection has ended: nothing more is read or written, so nothing is kept open."""
        assert self._wire is not None
        # In a task, since this is called where nothing may be awaited.
        self._nursery.start_soon(trio.aclose_forcefully, self._wire)
        code = 1006 if reason is None else reason.code
        if code == 1006:
            self._end(self._unread if self._wire.stalled else "the connection was lost", broken=True)
            return
        name = "" if reason is None else reason.name.lower().replace("_", " ")
        words = "" if reason is None or not reason.reason else f": {reason.reason[:200]}"
        why = f"closed with {code}, {name}{words}"
        if code == TOO_BIG and self._largest[1] is not None and self._ended_because is None:
            # If any message was too big, the largest was. To send it again would end the next connection, too.
            rejected = Unanswered(self._largest[1], why, error=RequestRejected(why))
            self._inbox.append((Envelope(rejected), 0))
        self._end(why, broken=code not in NORMAL)

    def _note_largest(self, values: Sequence[Envelope], messages: Sequence[bytes]) -> None:
        for value, message in zip(values, messages, strict=True):
            if len(message) > self._largest[0]:
                self._largest = len(message), value.message.id if isinstance(value.message, Request) else None

    def _failed(self, why: str) -> None:
        """End the connection without any farewell."""
        self._end(why, broken=True)
        if self._wire is not None:
            self._nursery.start_soon(trio.aclose_forcefully, self._wire)

    def _end(self, why: str, *, broken: bool) -> None:
        # The first reason stays: an error of the writer after the server's close frame explains nothing.
        if self._ended_because is None:
            self._ended_because, self._broken = why, broken
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _replenish(self, wire: LimitedStream) -> None:
        wire.allowance = 2 * self._limits.max_bytes + FRAME_OVERHEAD
