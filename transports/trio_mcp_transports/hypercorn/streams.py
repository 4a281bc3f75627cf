"""Hypercorn's HTTP and WebSocket exchanges, with the ends that it leaves open closed.

A send to a client that has left raises (stock: it returns at once, so that a loop which only sends spins for ever); a
refused handshake ends the connection (stock: it stays open without any deadline); a WebSocket never negotiates an
extension (permessage-deflate lets 60 KB on the wire become 180 MB), counts bytes, and is cut when it falls silent.

A WebSocket has a fast path beside the ASGI messages, which it never contradicts. Nearly all messages of MCP are text frames
that come whole in one read. As ASGI messages each costs two turns of Trio's loop and a walk through hypercorn's and wsproto's
layers, more than the call itself. On the fast path such a frame is decoded in place and handed to the endpoint while that
waits for it, and an answer is framed and written where it is made. Fragments, control frames, frames that break a rule, TLS,
and whatever has to wait do not take it.
"""

# pyright: basic
# Hypercorn's own types are partial.
from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

import trio
from hypercorn.protocol.events import Body, Data, Event, Request, StreamClosed
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream
from hypercorn.protocol.ws_stream import ASGIWebsocketState, FrameTooLargeError, WebsocketBuffer, WSStream
from hypercorn.typing import ASGISendEvent, WebsocketAcceptEvent
from hypercorn.typing import ConnectionState as HypercornState
from wsproto.connection import ConnectionState
from wsproto.events import CloseConnection, Message, Ping
from wsproto.frame_protocol import CloseReason

from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime import Account
from trio_mcp.runtime.loop_turn import TURN, LoopTurn

from ..asgi.failures import ClientDisconnected
from ..asgi.fast_path import FAST_PATH_KEY
from .config import limits_of
from .exchange import Inbox
from .frames import between_messages, text_frame, whole_text_frame, writes_of

# Frames of one read that are handled before every other task had a turn: of 64 KiB, up to ten thousand.
FRAMES_IN_TURN: Final = 128
# Fragments that a message may have, and one more for each so many bytes of it: a frame costs microseconds, however empty.
MAX_FRAGMENTS: Final = 1024
BYTES_PER_FRAGMENT: Final = 16


class GuardedHTTPStream(HTTPStream):
    """One HTTP exchange.

    Attributes:
        ending: the body being sent now is the last one, so its bytes and the end can share one write.
    """

    ending = False
    _lost = False

    async def handle(self, event: Event) -> None:
        if isinstance(event, StreamClosed) and not self.closed:
            self._lost = self.state is not ASGIHTTPState.CLOSED
        await super().handle(event)
        # Refused before the app was started. No app will end the exchange, so it is ended here; else the connection
        # would stay open without any deadline.
        if isinstance(event, Request) and self.closed:
            await self.send(StreamClosed(stream_id=self.stream_id))

    async def app_send(self, message: ASGISendEvent | None) -> None:
        if message is None:
            await super().app_send(None)
            return
        await check_not_lost(self._lost)
        # Known before the body is sent: the protocol then leaves the flush to the end of the message, so that a small
        # answer goes out in one write and one packet.
        is_body = message["type"] == "http.response.body"
        more = is_body and bool(message.get("more_body", False))
        self.ending = is_body and not more
        await super().app_send(message)
        if more and not message.get("body"):
            # An empty chunk is how an app asks for the response head at once (ASGI holds it until the first body).
            await self.send(Body(stream_id=self.stream_id, data=b""))
        # The client may have left while the message was written; hypercorn swallows that. An app that streams in a loop
        # has to be told, or it would go on for ever.
        if self._lost:
            raise ClientDisconnected


class GuardedWSStream(WSStream):
    """One WebSocket. No extensions, messages counted in bytes, cut after two unanswered ping intervals.

    It is the `asgi.fast_path.FastPath` that its endpoint finds in the scope.

    Attributes:
        on_message, turn: see `FastPath`.
        inbox: the ASGI events that the application has not received yet; set when the application is started.
        write_now: writes all of some bytes at once, or nothing of them.
        account: of the connection.
    """

    on_message: Callable[[bytes], bool] | None = None
    turn: LoopTurn | None = None
    inbox: Inbox | None = None
    write_now: Callable[[bytes], bool]
    account: Account

    ending = False
    _lost = False
    _last_received_at = 0.0
    _delivering = False
    _stored = 0
    _pinging: trio.CancelScope
    # When the message began that has not ended. None between messages: only then may the next bytes be read as new
    # frames.
    _message_began_at: float | None = None
    _fragments = 0

    async def handle(self, event: Event) -> None:
        if isinstance(event, Request):
            # Hypercorn limits the characters of a message. Up to four bytes each would let a message take four times
            # the limit.
            self.buffer = ByteBuffer(self.config.websocket_max_message_size)
            self._pinging = trio.CancelScope()
            # Extensions are taken out of the handshake rather than refused: a client has to do without what the server
            # does not repeat (RFC 6455, 9.1).
            event = without_extensions(event, {FAST_PATH_KEY: self})
        elif isinstance(event, StreamClosed):
            self._lost = self._lost or not self.closed
            self._pinging.cancel()
        elif not self.handshake.accepted:
            await self._refuse_early()
            return
        # While hypercorn hands the event to the app, which may let it wait for room, nothing is read. The silence is
        # ours then, and must not count against the client.
        self._last_received_at, self._delivering = trio.current_time(), True
        await super().handle(event)
        self._last_received_at, self._delivering = trio.current_time(), False
        # Asked of wsproto after every read and never tracked here: two states of one framing would sooner or later
        # differ.
        if self.handshake.accepted and between_messages(self.connection):
            self._message_began_at = None
        elif self._message_began_at is None:
            self._message_began_at = self._last_received_at
        # Refused before the app was started: nothing else would end the connection.
        if isinstance(event, Request) and self.closed:
            await self.send(StreamClosed(stream_id=self.stream_id))

    def take(self, data: bytes) -> bytes:
        """Offer whole text frames to the application while it takes them at once; returns the bytes that are left.

        More than `FRAMES_IN_TURN` of them are left too, and those for which the turn of the event loop has no time: the caller
        lets other tasks have a turn and calls again.
        """
        # In the middle of a message, bytes that look like a frame are a part of its payload.
        if self._message_began_at is not None or self.closed or self.on_message is None:
            return data
        self._last_received_at = trio.current_time()
        start, turn = 0, self.turn
        for _ in range(FRAMES_IN_TURN):
            if turn is not None and turn.spent > TURN:
                break
            found = whole_text_frame(data, start)
            if found is None:
                break
            payload, end = found
            # What is declined goes through wsproto with everything after it, so the order of messages stays.
            if len(payload) > self.config.websocket_max_message_size or not self.offer(payload):
                break
            start = end
        return data[start:] if start else data

    def offer(self, message: bytes) -> bool:
        """Hand a message to the endpoint; False if it has to take the slow path."""
        # Only while the inbox is empty and the application waits: a message must not overtake those that are queued.
        if self.on_message is None or self.inbox is None or not self.inbox.app_is_waiting:
            return False
        return self.on_message(message)

    def send_nowait(self, message: bytes) -> bool:
        """Send one message at once, or nothing of it; False for nothing."""
        return self._is_open and self.write_now(text_frame(message))

    async def send_many(self, messages: Iterable[bytes]) -> None:
        """Send messages in order, small ones in one write; none is sent once a close frame was.

        A message is made into a frame when its turn comes. Its sender has counted it until all are written, and keeps no copy.

        Raises:
            ClientDisconnected: the client has gone, or did not read in time.
        """
        await check_not_lost(self._lost)
        for frames in writes_of(messages):
            # After a close frame no data may follow (RFC 6455, 5.5.1). The frames are dropped as the network might have
            # dropped them.
            if not self._is_open:
                break
            await self.send(Data(stream_id=self.stream_id, data=frames))
        if self._lost:
            raise ClientDisconnected

    @property
    def _is_open(self) -> bool:
        """Whether the upgrade was accepted, and no close frame was sent or received."""
        return self.handshake.accepted and self.connection.state is ConnectionState.OPEN

    async def app_send(self, message: ASGISendEvent | None) -> None:
        if message is not None:
            if self._lost and message["type"] == "websocket.close":
                # The client has closed it meanwhile. That is a race and no fault of the app, so it does not raise.
                return
            await check_not_lost(self._lost)
        await super().app_send(message)
        if message is not None and self._lost and self.state is ASGIWebsocketState.CONNECTED:
            raise ClientDisconnected

    @property
    def peer_still_sending(self) -> bool:
        """Whether bytes of the client may still be under way: its close frame has not been seen."""
        return not self.handshake.accepted or self.connection.state is not ConnectionState.CLOSED

    async def _refuse_early(self) -> None:
        """The client did not wait for its handshake to be accepted (RFC 6455, 4.1)."""
        if self.closed or self.state is not ASGIWebsocketState.HANDSHAKE:
            # The app is refusing it already, and that answer is as good as ours.
            return
        # Set before anything is awaited: the app may be about to accept, and must not find the handshake still open.
        self.closed = self._lost = True
        if self.app_put is not None:
            await self.app_put({"type": "websocket.disconnect", "code": CloseReason.ABNORMAL_CLOSURE.value})
        await self._send_error_response(400)
        await self.send(StreamClosed(stream_id=self.stream_id))

    async def _accept(self, message: WebsocketAcceptEvent) -> None:
        try:
            await super()._accept(message)
        finally:
            # The app chose a wrong subprotocol or header. Hypercorn counts the handshake as over then; put back, it can
            # still be refused with a status.
            if not self.handshake.accepted:
                self.state = ASGIWebsocketState.HANDSHAKE

    async def _handle_events(self) -> None:
        for number, event in enumerate(self.connection.events(), 1):
            if number % FRAMES_IN_TURN == 0:
                await trio.lowlevel.checkpoint()
            if isinstance(event, Message):
                await self._handle_message(event)
            elif isinstance(event, Ping):
                await self._send_wsproto_event(event.response())
            elif isinstance(event, CloseConnection):
                # In REMOTE_CLOSING this answers the peer's close; in OPEN it tells the peer that its framing is wrong
                # (RFC 6455, 7.1.7).
                if self.connection.state is not ConnectionState.CLOSED:
                    await self._send_wsproto_event(event)
                await self.send(StreamClosed(stream_id=self.stream_id))
            if self.closed:
                return

    async def _handle_message(self, event: Message[str] | Message[bytes | bytearray]) -> None:
        try:
            self._store(event)
        except FrameTooLargeError:
            self._drop()
            await self._fail_connection(
                CloseReason.MESSAGE_TOO_BIG, f"a message may have {self.buffer.max_length} bytes"
            )
            return
        except LimitExceeded:
            self._drop()
            # A reason has at most 123 bytes (RFC 6455, 5.5).
            await self._fail_connection(CloseReason.TRY_AGAIN_LATER, "the memory budget of this server is used up")
            return
        self._fragments += event.frame_finished
        if self._fragments > MAX_FRAGMENTS + self.buffer.length // BYTES_PER_FRAGMENT:
            self._drop()
            reason = f"a message may have {MAX_FRAGMENTS} fragments, and one for each {BYTES_PER_FRAGMENT} bytes"
            await self._fail_connection(CloseReason.POLICY_VIOLATION, reason)
            return
        if event.message_finished and self.app_put is not None:
            # What follows is the next message. That the app takes its time for this one is no delay of the client.
            self._message_began_at = None
            self._fragments = 0
            message = self.buffer.to_message()
            self._drop()
            await self.app_put(message)

    def _store(self, event: Message[str] | Message[bytes | bytearray]) -> None:
        """Keep a part of a message. Raises `FrameTooLargeError`, or `LimitExceeded` if the memory budget has no room."""
        # A message that comes whole is handed on at once, and is counted where it waits.
        if not event.message_finished or self._stored:
            size = sys.getsizeof(event.data)
            self.account.check(size)
            self.account.draw(size)
            self._stored += size
        self.buffer.extend(event)

    def _drop(self) -> None:
        """Forget the parts of the message."""
        self.buffer.clear()
        self.account.give_back(self._stored)
        self._stored = 0

    async def _fail_connection(self, code: CloseReason, reason: str) -> None:
        await self._send_wsproto_event(CloseConnection(code=code, reason=reason))
        await self.send(StreamClosed(stream_id=self.stream_id))

    async def _send_pings(self) -> None:
        interval = self.config.websocket_ping_interval
        assert interval is not None
        timeout = limits_of(self.config).message_timeout
        with self._pinging:
            while not self.closed:
                await trio.sleep(interval)
                # A ping is sent before the client is cut: two silent intervals mean that it did not even answer that.
                now = trio.current_time()
                silent = 0.0 if self._delivering else now - self._last_received_at
                if silent > 2 * interval:
                    await self.send(StreamClosed(stream_id=self.stream_id))
                elif self._message_began_at is not None and now - self._message_began_at > timeout:
                    reason = f"a message may take {timeout:g} seconds"
                    await self._fail_connection(CloseReason.POLICY_VIOLATION, reason)
                else:
                    await self._send_wsproto_event(Ping())


class ByteBuffer(WebsocketBuffer):
    """Counts the bytes of a text message; hypercorn's counts its characters.

    The parts are joined at the end only: a buffer that grows with them would be copied for each, and leave holes in the heap.
    """

    def __init__(self, max_length: int) -> None:
        super().__init__(max_length)
        self._parts: list[str | bytes | bytearray] = []

    def extend(self, event: Message[str] | Message[bytes | bytearray]) -> None:
        data = event.data
        # Pure ASCII has as many bytes as characters, so most messages need no second encoding.
        self.length += len(data.encode()) if isinstance(data, str) and not data.isascii() else len(data)
        if self.length > self.max_length:
            raise FrameTooLargeError
        # The first even if it is empty: it tells text from bytes.
        if data or not self._parts:
            self._parts.append(data)

    def clear(self) -> None:
        self._parts.clear()
        self.length = 0

    def to_message(self) -> dict[str, object]:
        text = [part for part in self._parts if isinstance(part, str)]
        if len(text) == len(self._parts):
            return {"type": "websocket.receive", "bytes": None, "text": "".join(text)}
        return {
            "type": "websocket.receive",
            "bytes": b"".join(part for part in self._parts if not isinstance(part, str)),
            "text": None,
        }


def without_extensions(event: Request, state: dict[str, object]) -> Request:
    """The handshake as if the client had offered no extension, and with more in the state that the application sees."""
    headers = [(name, value) for name, value in event.headers if name.lower() != b"sec-websocket-extensions"]
    return replace(event, headers=headers, state=HypercornState({**event.state, **state}))


async def check_not_lost(lost: bool) -> None:
    """A cancel point before anything is written; a full checkpoint before an error, so that no retry loop can spin."""
    if lost:
        # A full checkpoint even though it fails: an app that catches the error and tries again must give way to others.
        await trio.lowlevel.checkpoint()
        raise ClientDisconnected
    await trio.lowlevel.checkpoint_if_cancelled()
