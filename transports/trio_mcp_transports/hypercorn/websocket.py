"""One WebSocket of a connection (RFC 6455).

It negotiates no extension (permessage-deflate lets 60 KB on the wire become 180 MB), counts bytes, and is cut when it falls
silent.

`receive_many` is the one way in: who awaits it reads the connection. The application does that in the task of the connection: a
message costs no task step besides that of its call, and while the application does not receive, its client is not read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import Final, Protocol, cast

import trio
from wsproto.frame_protocol import CloseReason, Frame, Opcode, ParseFailed
from wsproto.utilities import generate_accept_token, split_comma_header

from trio_mcp.runtime import Account

from ..asgi.access import Headers
from ..asgi.access_log import AccessRecord
from ..asgi.authentication import ClientDisconnected, log_failures
from ..asgi.requests import Request
from ..asgi.responses import Binary, MessageSocket
from .config import limits_of
from .connections import ConnectionFacts
from .frames import OUTGOING, MessageReader, read_close, text_frame, writes_of
from .response import Writer

# Frames of one read that are handled before every other task had a turn: of 64 KiB, up to ten thousand.
FRAMES_IN_TURN: Final = 128
MAX_UNANSWERED_PINGS: Final = 2


class Handshake:
    """The client's half of an opening handshake (RFC 6455, 4.1).

    Attributes:
        is_valid: it is one (4.2.1).
        subprotocols: those that the client offers.
    """

    def __init__(self, request: Request, *, is_newest: bool) -> None:
        self._key = (request.header("sec-websocket-key") or "").encode("latin-1")
        protocols = request.header("sec-websocket-protocol")
        self.subprotocols = [] if protocols is None else split_comma_header(protocols.encode("latin-1"))
        self.is_valid = bool(self._key) and request.header("sec-websocket-version") == "13" and is_newest

    def answer(self, subprotocol: str | None) -> Headers:
        """Return the headers that accept it."""
        headers = [
            (b"sec-websocket-accept", generate_accept_token(self._key)),
            (b"upgrade", b"WebSocket"),
            (b"connection", b"Upgrade"),
        ]
        return headers if subprotocol is None else [*headers, (b"sec-websocket-protocol", subprotocol.encode())]


class WebSocketOwner(Protocol):
    """The connection, as far as its WebSocket is concerned."""

    facts: ConnectionFacts
    writer: Writer
    account: Account

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` in a task of the connection."""

    def end_websocket(self) -> None:
        """Close the connection."""


class WebSocketExchange(MessageSocket):
    """One WebSocket that was accepted.

    Args:
        receive: receives bytes of the client; b"" at the end.
        serve: the application, which receives the messages from here.
        record: of the access log; None without one.

    Attributes:
        over: the connection is over.
    """

    def __init__(
        self,
        owner: WebSocketOwner,
        receive: Callable[[], Awaitable[bytes]],
        serve: Callable[[MessageSocket], Awaitable[None]],
        record: AccessRecord | None,
    ) -> None:
        self._owner = owner
        self._facts = owner.facts
        self._writer = owner.writer
        self._receive = receive
        self._serve = serve
        self._record = record
        self.over = False
        self.writes_at_once = not self._facts.tls
        self._reader = MessageReader(self._facts.config.websocket_max_message_size, owner.account)
        self._frames = 0
        self._close_sent = self._close_received = False
        self._on_lost: Callable[[], None] | None = None
        self._pinging = trio.CancelScope()
        self._message_began_at: float | None = None
        # Pings since bytes came last. They count while bytes are awaited: else the silence is ours.
        self._unanswered_pings = 0
        self._is_waiting = False

    # From the client

    def open(self, max_message: int, on_lost: Callable[[], None]) -> None:
        self._reader.limit = min(self._reader.limit, max_message)
        self._on_lost = on_lost

    async def receive_many(self) -> Iterable[bytes | Binary]:
        while not self.over:
            # First, for a cancel would lose a message that was taken already.
            if self._frames >= FRAMES_IN_TURN:
                self._frames = 0
                await trio.lowlevel.checkpoint()
            self._frames += 1
            try:
                frame = self._reader.next()
                if frame is None:
                    await self._receive_more()
                elif not isinstance(frame, Frame):
                    # What follows is the next message. That the app takes its time for this one is no delay of the client.
                    self._message_began_at = None
                    # The others are decoded when they are reached.
                    return chain((frame,), iter(self._reader.next_text, None)) if self._reader.unread else (frame,)
                elif frame.opcode.iscontrol():
                    await self._handle_control(frame.opcode, cast(bytes, frame.payload))
            except ParseFailed as error:
                await self._fail(error.code, str(error))
        return ()

    async def serve(self) -> None:
        """Let the application read the connection until it is over, or that ends."""
        try:
            with log_failures("the ASGI app failed in a websocket exchange", self._facts.connections.records):
                await self._serve(self)
        finally:
            if self._record is not None:
                self._record.end(101, 0, is_complete=True)
        if not self.over:
            # A WebSocket that the application has not closed was not served to its end.
            await self._fail(CloseReason.INTERNAL_ERROR, None)

    async def _receive_more(self) -> None:
        if self._reader.is_between:
            self._message_began_at = None
        elif self._message_began_at is None:
            self._message_began_at = trio.current_time()
        self._frames, self._is_waiting = 0, True
        try:
            data = await self._receive()
        finally:
            self._unanswered_pings, self._is_waiting = 0, False
        if not data:
            self.lose()
        elif not self.over:
            self._reader.feed(data)

    async def _handle_control(self, opcode: Opcode, payload: bytes) -> None:
        """Handle a control frame. Raises `ParseFailed` for a close frame that breaks a rule."""
        if opcode is Opcode.PING:
            await self._say(OUTGOING.pong(payload))
        elif opcode is Opcode.CLOSE:
            code, reason = read_close(payload)
            self._close_received = True
            await self._fail(code, reason)

    def lose(self) -> None:
        """Tell the application that the connection is over."""
        if self.over:
            return
        self.over = True
        self._pinging.cancel()
        self._reader.clear()
        if self._on_lost is not None:
            self._on_lost()

    @property
    def peer_still_sending(self) -> bool:
        """Whether bytes of the client may still be under way: no close frames were exchanged."""
        return not (self._close_sent and self._close_received)

    # From the application

    def send_nowait(self, message: bytes) -> bool:
        return self._is_open and self._writer.write_now(text_frame(message))

    async def send_many(self, messages: Iterable[bytes]) -> None:
        # A message is made into a frame when its turn comes. Its sender has counted it until all are written, and keeps no copy.
        await self._check_not_over()
        for frames in writes_of(messages):
            # After a close frame no data may follow (RFC 6455, 5.5.1). The frames are dropped as the network might have
            # dropped them.
            if not self._is_open:
                break
            await self._writer.write(frames)
        if self.over:
            raise ClientDisconnected

    async def _check_not_over(self) -> None:
        """A cancel point before anything is written; a full checkpoint before an error, so that no retry loop can spin."""
        if self.over:
            # A full checkpoint even though it fails: an app that catches the error and tries again must give way to others.
            await trio.lowlevel.checkpoint()
            raise ClientDisconnected
        await trio.lowlevel.checkpoint_if_cancelled()

    @property
    def _is_open(self) -> bool:
        """Whether no close frame was sent or received."""
        return not self._close_sent and not self._close_received

    async def close(self, code: int, reason: str) -> None:
        # The client may have closed it meanwhile. That is a race and no fault of the application, so it does not raise.
        if not self.over:
            await trio.lowlevel.checkpoint_if_cancelled()
            await self._say_close(code, reason)

    async def _fail(self, code: int, reason: str | None) -> None:
        """Send a close frame unless one was sent, and close the connection."""
        self._reader.clear()
        await self._say_close(code, reason)
        self._owner.end_websocket()

    async def _say_close(self, code: int, reason: str | None) -> None:
        if not self._close_sent:
            self._close_sent = True
            await self._writer.write(bytes(OUTGOING.close(code, reason)))

    async def _say(self, frame: bytes | bytearray) -> None:
        # After a close frame nothing may follow.
        if not self._close_sent and not self._close_received:
            await self._writer.write(bytes(frame))

    def start_pings(self) -> None:
        """Start sending pings, if `websocket_ping_interval` is set."""
        if self._facts.config.websocket_ping_interval is not None:
            self._owner.run(self._send_pings)

    async def _send_pings(self) -> None:
        timeout = limits_of(self._facts.config).message_timeout
        interval = self._facts.config.websocket_ping_interval or 0.0
        with self._pinging:
            while not self.over:
                await trio.sleep(interval)
                began = self._message_began_at
                if self._unanswered_pings == MAX_UNANSWERED_PINGS:
                    self._owner.end_websocket()
                elif began is not None and trio.current_time() - began > timeout:
                    await self._fail(CloseReason.POLICY_VIOLATION, f"a message may take {timeout:g} seconds")
                else:
                    self._unanswered_pings += self._is_waiting
                    await self._say(OUTGOING.ping())
