"""One WebSocket of a connection (RFC 6455), for an ASGI application (WebSocket specification 2.3) or read directly by our own.

It negotiates no extension (permessage-deflate lets 60 KB on the wire become 180 MB), counts bytes, and is cut when it falls
silent.

`receive_many` is the one way in: who awaits it reads the connection. Our own application, where nothing is between it and this
server, does that itself, in the task of the connection: a message costs no task step besides that of its call, and while the
application does not receive, its client is not read. For any other application `read` reads, and queues ASGI messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from enum import Enum, auto
from itertools import chain
from typing import Final, cast

import h11
import trio
from wsproto.frame_protocol import CloseReason, Frame, Opcode, ParseFailed
from wsproto.utilities import generate_accept_token, split_comma_header

from trio_mcp.runtime import Account

from ..asgi.authentication import ClientDisconnected
from ..asgi.messages import WEBSOCKET_KEY, Binary, Message, MessageSocket
from .config import limits_of
from .exchange import ConnectionFacts, HttpExchange, check_not_lost, scope_of
from .frames import OUTGOING, MessageReader, read_close, text_frame, writes_of
from .inbox import Inbox
from .response import Response, UnexpectedMessage, Writer, checked

# Frames of one read that are handled before every other task had a turn: of 64 KiB, up to ten thousand.
FRAMES_IN_TURN: Final = 128
MAX_UNANSWERED_PINGS: Final = 2
EXTENSIONS: Final = b"sec-websocket-extensions"


class State(Enum):
    """How far a WebSocket is."""

    HANDSHAKE = auto()
    """Not answered, or refused."""
    CONNECTED = auto()
    CLOSED = auto()
    """By the application."""


class WebSocketExchange(MessageSocket):
    """One WebSocket.

    Args:
        receive: receives bytes of the client; b"" at the end.
        nursery: for the pings.
        is_direct: the application finds it in its scope, and receives its messages from there.

    Attributes:
        is_valid: the request is a handshake (RFC 6455, 4.2.1).
        over: the connection is over.
        run_app: runs the application, if that receives the messages from here; None before it is started.
    """

    def __init__(
        self,
        facts: ConnectionFacts,
        request: h11.Request,
        inbox: Inbox,
        response: Response,
        writer: Writer,
        account: Account,
        receive: Callable[[], Awaitable[bytes]],
        nursery: trio.Nursery,
        *,
        is_direct: bool = False,
    ) -> None:
        headers = dict(request.headers)
        self._key = headers.get(b"sec-websocket-key", b"")
        protocols = headers.get(b"sec-websocket-protocol")
        self._subprotocols = [] if protocols is None else split_comma_header(protocols)
        is_version_13 = headers.get(b"sec-websocket-version") == b"13"
        self.is_valid = bool(self._key) and is_version_13 and request.http_version >= b"1.1"
        self.scope = {"type": "websocket", "scheme": "wss" if facts.tls else "ws", **scope_of(facts, request)}
        self.scope |= {"asgi": {"spec_version": "2.3", "version": "3.0"}, "subprotocols": self._subprotocols}
        self.scope["extensions"] = {"websocket.http.response": {}}
        # Extensions are taken out of the handshake rather than refused: a client has to do without what the server
        # does not repeat (RFC 6455, 9.1).
        self.scope["headers"] = [line for line in self.scope["headers"] if line[0].lower() != EXTENSIONS]
        if is_direct:
            self.scope["state"][WEBSOCKET_KEY] = self
        self.is_direct = is_direct
        self.run_app: Callable[[], Awaitable[None]] | None = None
        self.inbox = inbox
        self.over = False
        self.writes_at_once = not facts.tls
        self._facts = facts
        self._response = response
        self._refusal = HttpExchange(facts, self.scope, inbox, response)
        self._writer = writer
        self._receive = receive
        self._nursery = nursery
        self._reader = MessageReader(facts.config.websocket_max_message_size, account)
        self._frames = 0
        self._state = State.HANDSHAKE
        self._is_lost = self._close_sent = self._close_received = False
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

    async def read(self) -> None:
        """Read the connection until it is over."""
        await (self._pump() if self.run_app is None else self.run_app())

    async def _pump(self) -> None:
        """Queue each message as an ASGI message until the connection is over; waits while the application has many unread."""
        while messages := await self.receive_many():
            # The others are in the next ones, between which other tasks have a turn.
            message = next(iter(messages))
            data, text = (message.data, None) if isinstance(message, Binary) else (None, message.decode())
            del messages, message
            await self.inbox.put({"type": "websocket.receive", "bytes": data, "text": text})
            del data, text

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
            await self.lose()
        elif self._state is State.HANDSHAKE:
            await self.refuse_early()
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

    async def lose(self) -> None:
        """Tell the application that the connection is over."""
        if self.over:
            return
        self.over = self._is_lost = True
        self._pinging.cancel()
        self._reader.clear()
        if self._on_lost is not None:
            self._on_lost()
        code = CloseReason.NORMAL_CLOSURE if self._state is State.CLOSED else CloseReason.ABNORMAL_CLOSURE
        await self.inbox.put({"type": "websocket.disconnect", "code": code.value})

    @property
    def peer_still_sending(self) -> bool:
        """Whether bytes of the client may still be under way: no close frames were exchanged."""
        return not (self._close_sent and self._close_received)

    # From the application

    def send_nowait(self, message: bytes) -> bool:
        return self._is_open and self._writer.write_now(text_frame(message))

    async def send_many(self, messages: Iterable[bytes]) -> None:
        # A message is made into a frame when its turn comes. Its sender has counted it until all are written, and keeps no copy.
        await check_not_lost(self._is_lost)
        for frames in writes_of(messages):
            # After a close frame no data may follow (RFC 6455, 5.5.1). The frames are dropped as the network might have
            # dropped them.
            if not self._is_open:
                break
            await self._writer.write(frames)
        if self._is_lost:
            raise ClientDisconnected

    @property
    def _is_open(self) -> bool:
        """Whether the upgrade was accepted, and no close frame was sent or received."""
        return self._state is State.CONNECTED and not self._close_sent and not self._close_received

    async def close(self, code: int, reason: str) -> None:
        await self.send({"type": "websocket.close", "code": code, "reason": reason})

    async def send(self, message: Message) -> None:
        """Send one ASGI message. Raises `ClientDisconnected` if the client has gone, and `UnexpectedMessage`."""
        kind: str = message["type"]
        if self._is_lost and kind == "websocket.close":
            # The client has closed it meanwhile. That is a race and no fault of the app, so it does not raise.
            return
        await check_not_lost(self._is_lost)
        match kind, self._state:
            case "websocket.accept", State.HANDSHAKE:
                await self._accept(message)
            case "websocket.http.response.start" | "websocket.http.response.body", State.HANDSHAKE:
                await self._refusal.send({**message, "type": kind.removeprefix("websocket.")})
            case "websocket.send", State.CONNECTED:
                data = message.get("bytes")
                # Raises `TypeError` unless the payload is text.
                frame = OUTGOING.send_data(bytes(data)) if data is not None else text_frame(str.encode(message["text"]))
                await self._say(frame)
            case "websocket.close", State.HANDSHAKE:
                await self.refuse(403)
            case "websocket.close", State.CONNECTED:
                self._state = State.CLOSED
                await self._say_close(int(message.get("code", CloseReason.NORMAL_CLOSURE)), message.get("reason"))
            case _:
                raise UnexpectedMessage(f"{kind} cannot be sent now: {self._state.name.lower()}")
        if self._is_lost and self._state is State.CONNECTED:
            raise ClientDisconnected

    async def _accept(self, message: Message) -> None:
        subprotocol: str | None = message.get("subprotocol")
        headers = [(b"sec-websocket-accept", generate_accept_token(self._key))]
        headers += [(b"upgrade", b"WebSocket"), (b"connection", b"Upgrade")]
        if subprotocol is not None:
            if subprotocol not in self._subprotocols:
                raise UnexpectedMessage(f"the client has not offered the subprotocol {subprotocol!r:.80}")
            headers.append((b"sec-websocket-protocol", subprotocol.encode()))
        for name, value in checked(message.get("headers", [])):
            if name == b"sec-websocket-protocol":
                raise UnexpectedMessage("a subprotocol is accepted as such, and not as a header")
            headers.append((name, value))
        self._state = State.CONNECTED
        await self._response.accept(headers)
        await self._refusal.log_access({"status": 101, "headers": []})
        if self._facts.config.websocket_ping_interval is not None:
            self._nursery.start_soon(self._send_pings, self._facts.config.websocket_ping_interval)

    async def refuse(self, status: int) -> None:
        """Refuse the handshake with a status alone, and close the connection."""
        await self._refusal.refuse(status)

    async def refuse_early(self) -> None:
        """The client did not wait for its handshake to be accepted (RFC 6455, 4.1)."""
        # The app may be refusing it already, and that answer is as good as ours.
        if not self._response.began:
            # Set before anything is awaited: the app may be about to accept, and must not find the handshake still open.
            self._is_lost = True
            await self.inbox.put({"type": "websocket.disconnect", "code": CloseReason.ABNORMAL_CLOSURE.value})
            await self.refuse(400)

    async def end(self) -> None:
        """The application has ended: the connection is closed, in a handshake with 500."""
        if self.over:
            return
        if self._state is State.HANDSHAKE:
            await self._refusal.end()
        elif self._state is State.CONNECTED:
            await self._fail(CloseReason.INTERNAL_ERROR, None)
        else:
            await self._response.end_response()

    async def _fail(self, code: int, reason: str | None) -> None:
        """Send a close frame unless one was sent, and close the connection."""
        self._reader.clear()
        await self._say_close(code, reason)
        await self._response.end_response()

    async def _say_close(self, code: int, reason: str | None) -> None:
        if not self._close_sent:
            self._close_sent = True
            await self._writer.write(bytes(OUTGOING.close(code, reason)))

    async def _say(self, frame: bytes | bytearray) -> None:
        # After a close frame nothing may follow.
        if not self._close_sent and not self._close_received:
            await self._writer.write(bytes(frame))

    async def _send_pings(self, interval: float) -> None:
        timeout = limits_of(self._facts.config).message_timeout
        with self._pinging:
            while not self.over:
                await trio.sleep(interval)
                began = self._message_began_at
                if self._unanswered_pings == MAX_UNANSWERED_PINGS:
                    await self._response.end_response()
                elif began is not None and trio.current_time() - began > timeout:
                    await self._fail(CloseReason.POLICY_VIOLATION, f"a message may take {timeout:g} seconds")
                else:
                    self._unanswered_pings += self._is_waiting
                    await self._say(OUTGOING.ping())
