"""One WebSocket of a connection (RFC 6455), by wsproto, for an ASGI application (WebSocket specification 2.3).

It negotiates no extension (permessage-deflate lets 60 KB on the wire become 180 MB), counts bytes, and is cut when it falls
silent.

It has a fast path beside the ASGI messages, which it never contradicts. Nearly all messages of MCP are text frames that come
whole in one read. As ASGI messages each costs two turns of Trio's loop and a walk through wsproto's layers, more than the call
itself. On the fast path such a frame is decoded in place and handed to the endpoint while that waits for it, and an answer is
framed and written where it is made. Fragments, control frames, frames that break a rule, TLS, and whatever has to wait do not
take it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto
from time import time
from typing import Final, cast

import h11
import trio
from hypercorn.typing import HTTPResponseStartEvent, ResponseSummary, WWWScope
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.events import Event as WebSocketEvent
from wsproto.events import Message as MessagePart
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, generate_accept_token, split_comma_header

from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime import Account
from trio_mcp.runtime.loop_turn import TURN, LoopTurn

from ..asgi.failures import ClientDisconnected
from ..asgi.fast_path import FAST_PATH_KEY
from ..asgi.messages import Message
from .config import limits_of
from .exchange import ConnectionFacts, check_not_lost, scope_of
from .frames import MessageTooLarge, Parts, between_messages, text_frame, whole_text_frame, writes_of
from .inbox import Inbox
from .response import NO_BODY, Response, UnexpectedMessage, checked
from .writes import Writer

# Frames of one read that are handled before every other task had a turn: of 64 KiB, up to ten thousand.
FRAMES_IN_TURN: Final = 128
# Fragments that a message may have, and one more for each so many bytes of it: a frame costs microseconds, however empty.
MAX_FRAGMENTS: Final = 1024
BYTES_PER_FRAGMENT: Final = 16
EXTENSIONS: Final = b"sec-websocket-extensions"


class State(Enum):
    """How far a WebSocket is."""

    HANDSHAKE = auto()
    REFUSING = auto()
    REFUSED = auto()
    CONNECTED = auto()
    CLOSED = auto()
    """By the application."""


ACCEPTED: Final = frozenset({State.CONNECTED, State.CLOSED})


class WebSocketExchange:
    """One WebSocket. It is the `asgi.fast_path.FastPath` that its endpoint finds in the scope.

    Attributes:
        on_message, turn: see `FastPath`.
        is_valid: the request is a handshake (RFC 6455, 4.2.1).
        over: the connection is over.
    """

    def __init__(
        self,
        facts: ConnectionFacts,
        request: h11.Request,
        inbox: Inbox,
        response: Response,
        writer: Writer,
        account: Account,
    ) -> None:
        self.on_message: Callable[[bytes], bool] | None = None
        self.turn: LoopTurn | None = None
        self.inbox = inbox
        self.over = False
        self._facts = facts
        self._response = response
        self._writer = writer
        self._account = account
        self._parts = Parts(facts.config.websocket_max_message_size, account)
        self._wsproto = Connection(ConnectionType.SERVER)
        self._state = State.HANDSHAKE
        self._is_lost = False
        self._start: Message = {"status": 500, "headers": []}
        self._began = time()
        self._nursery: trio.Nursery
        self._pinging = trio.CancelScope()
        self._last_received_at = trio.current_time()
        self._delivering = False
        # When the message began that has not ended. None between messages: only then may the next bytes be read as new
        # frames.
        self._message_began_at: float | None = None
        self._key = b""
        self._subprotocols: list[str] = []
        version = b""
        for name, value in request.headers:
            if name == b"sec-websocket-key":
                self._key = value
            elif name == b"sec-websocket-version":
                version = value
            elif name == b"sec-websocket-protocol":
                self._subprotocols = split_comma_header(value)
        self.is_valid = bool(self._key) and version == b"13" and request.http_version >= b"1.1"
        self.scope = {"type": "websocket", "scheme": "wss" if facts.tls else "ws", **scope_of(facts, request)}
        self.scope |= {"asgi": {"spec_version": "2.3", "version": "3.0"}, "subprotocols": self._subprotocols}
        self.scope["extensions"] = {"websocket.http.response": {}}
        # Extensions are taken out of the handshake rather than refused: a client has to do without what the server
        # does not repeat (RFC 6455, 9.1).
        self.scope["headers"] = [line for line in self.scope["headers"] if line[0].lower() != EXTENSIONS]
        self.scope["state"][FAST_PATH_KEY] = self

    async def begin(self, nursery: trio.Nursery) -> None:
        """Prepare for the application, which is started next.

        Args:
            nursery: for the pings.
        """
        self._nursery = nursery
        await self.inbox.put({"type": "websocket.connect"})

    # From the client

    async def receive(self, data: bytes) -> None:
        """Handle received bytes; waits while the application has many unread."""
        left = self.take(data)
        # A part was taken, or nothing because the turn is over. More is taken in turn with other tasks.
        while left and (len(left) < len(data) or self._turn_is_over):
            await self._next_turn()
            data, left = left, self.take(left)
        if left:
            await self._receive_slowly(left)

    def take(self, data: bytes) -> bytes:
        """Offer whole text frames to the application while it takes them at once; returns the bytes that are left.

        More than `FRAMES_IN_TURN` of them are left too, and those for which the turn of the event loop has no time: the caller
        lets other tasks have a turn and calls again.
        """
        # In the middle of a message, bytes that look like a frame are a part of its payload.
        if self._message_began_at is not None or self.over or self.on_message is None:
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
            if len(payload) > self._parts.limit or not self.offer(payload):
                break
            start = end
        return data[start:] if start else data

    def offer(self, message: bytes) -> bool:
        """Hand a message to the endpoint; False if it has to take the slow path."""
        # Only while the inbox is empty and the application waits: a message must not overtake those that are queued.
        return self.on_message is not None and self.inbox.app_is_waiting and self.on_message(message)

    @property
    def _turn_is_over(self) -> bool:
        return self.turn is not None and self.turn.is_over

    async def _next_turn(self) -> None:
        """Let other tasks run, until the fast path may take more."""
        if self.turn is not None and self.turn.is_over:
            await self.turn.pass_on()
        else:
            await trio.lowlevel.checkpoint()

    async def _receive_slowly(self, data: bytes) -> None:
        if self.over:
            return
        if self._state not in ACCEPTED:
            await self._refuse_early()
            return
        # While an event is handed to the app, which may let it wait for room, nothing is read. The silence is ours then, and must
        # not count against the client.
        self._last_received_at, self._delivering = trio.current_time(), True
        self._wsproto.receive_data(data)
        await self._handle_events()
        self._last_received_at, self._delivering = trio.current_time(), False
        # Asked of wsproto after every read and never tracked here: two states of one framing would sooner or later
        # differ.
        if between_messages(self._wsproto):
            self._message_began_at = None
        elif self._message_began_at is None:
            self._message_began_at = self._last_received_at

    async def _handle_events(self) -> None:
        for number, event in enumerate(self._wsproto.events(), 1):
            if number % FRAMES_IN_TURN == 0:
                await trio.lowlevel.checkpoint()
            if isinstance(event, MessagePart):
                await self._handle_part(event)
            elif isinstance(event, Ping):
                await self._say(event.response())
            elif isinstance(event, CloseConnection):
                # In REMOTE_CLOSING this answers the peer's close; in OPEN it tells the peer that its framing is wrong
                # (RFC 6455, 7.1.7).
                if self._wsproto.state is not ConnectionState.CLOSED:
                    await self._say(event)
                await self._response.end_response()
            if self.over:
                return

    async def _handle_part(self, part: MessagePart[str] | MessagePart[bytes | bytearray]) -> None:
        parts = self._parts
        try:
            parts.add(part.data, is_last=part.message_finished, ends_frame=part.frame_finished)
        except MessageTooLarge:
            await self._fail(CloseReason.MESSAGE_TOO_BIG, f"a message may have {parts.limit} bytes")
            return
        except LimitExceeded:
            # A reason has at most 123 bytes (RFC 6455, 5.5).
            await self._fail(CloseReason.TRY_AGAIN_LATER, "the memory budget of this server is used up")
            return
        if parts.fragments > MAX_FRAGMENTS + parts.size // BYTES_PER_FRAGMENT:
            reason = f"a message may have {MAX_FRAGMENTS} fragments, and one for each {BYTES_PER_FRAGMENT} bytes"
            await self._fail(CloseReason.POLICY_VIOLATION, reason)
            return
        if part.message_finished:
            # What follows is the next message. That the app takes its time for this one is no delay of the client.
            self._message_began_at = None
            await self.inbox.put(parts.message())

    async def lose(self) -> None:
        """Tell the application that the connection is over."""
        if self.over:
            return
        self.over = self._is_lost = True
        self._pinging.cancel()
        self._parts.clear()
        is_normal = self._state in (State.REFUSED, State.CLOSED)
        code = CloseReason.NORMAL_CLOSURE if is_normal else CloseReason.ABNORMAL_CLOSURE
        await self.inbox.put({"type": "websocket.disconnect", "code": code.value})

    @property
    def peer_still_sending(self) -> bool:
        """Whether bytes of the client may still be under way: its close frame has not been seen."""
        return self._state not in ACCEPTED or self._wsproto.state is not ConnectionState.CLOSED

    # From the application

    def send_nowait(self, message: bytes) -> bool:
        """Send one message at once, or nothing of it; False for nothing."""
        return self._is_open and self._writer.write_now(text_frame(message))

    async def send_many(self, messages: Iterable[bytes]) -> None:
        """Send messages in order, small ones in one write; none is sent once a close frame was.

        A message is made into a frame when its turn comes. Its sender has counted it until all are written, and keeps no copy.

        Raises:
            ClientDisconnected: the client has gone, or did not read in time.
        """
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
        return self._state is State.CONNECTED and self._wsproto.state is ConnectionState.OPEN

    async def send(self, message: Message) -> None:
        """Send one ASGI message. Raises `ClientDisconnected` if the client has gone, and `UnexpectedMessage`."""
        kind = message["type"]
        if self._is_lost and kind == "websocket.close":
            # The client has closed it meanwhile. That is a race and no fault of the app, so it does not raise.
            return
        await check_not_lost(self._is_lost)
        match kind, self._state:
            case "websocket.accept", State.HANDSHAKE:
                await self._accept(message)
            case "websocket.http.response.start", State.HANDSHAKE:
                self._start = message
            case "websocket.http.response.body", State.HANDSHAKE | State.REFUSING:
                await self._send_refusal(message)
            case "websocket.send", State.CONNECTED:
                text, data = message.get("text"), message.get("bytes")
                await self._say(BytesMessage(bytes(data)) if data is not None else TextMessage(checked_text(text)))
            case "websocket.close", State.HANDSHAKE:
                await self.refuse(403)
            case "websocket.close", State.CONNECTED:
                code = int(message.get("code", CloseReason.NORMAL_CLOSURE))
                self._state = State.CLOSED
                await self._say(CloseConnection(code=code, reason=message.get("reason")))
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
        await self._log_access({"status": 101, "headers": []})
        if self._facts.config.websocket_ping_interval is not None:
            self._nursery.start_soon(self._send_pings, self._facts.config.websocket_ping_interval)

    async def _send_refusal(self, message: Message) -> None:
        status, more = int(self._start["status"]), bool(message.get("more_body", False))
        if self._state is State.HANDSHAKE:
            self._response.set_head(status, checked(self._start["headers"]))
            self._state = State.REFUSING
        body = b"" if status in NO_BODY else bytes(message.get("body", b""))
        await self._response.send_body(body, more=more)
        if not more:
            self._state = State.REFUSED
            await self._log_access(self._start)

    async def refuse(self, status: int) -> None:
        """Refuse the handshake with a status alone, and close the connection."""
        self._start = {"status": status, "headers": []}
        self._state = State.REFUSED
        self._response.set_head(status, [(b"content-length", b"0"), (b"connection", b"close")])
        await self._response.send_body(b"", more=False)
        await self._log_access(self._start)
        await self._response.end_response()

    async def _refuse_early(self) -> None:
        """The client did not wait for its handshake to be accepted (RFC 6455, 4.1)."""
        if self._state is not State.HANDSHAKE:
            # The app is refusing it already, and that answer is as good as ours.
            return
        # Set before anything is awaited: the app may be about to accept, and must not find the handshake still open.
        self._is_lost = True
        await self.inbox.put({"type": "websocket.disconnect", "code": CloseReason.ABNORMAL_CLOSURE.value})
        await self.refuse(400)

    async def end(self) -> None:
        """The application has ended: the connection is closed, in a handshake with 500."""
        if self.over:
            return
        if self._state is State.HANDSHAKE:
            await self.refuse(500)
            return
        if self._state is State.CONNECTED:
            await self._say(CloseConnection(code=CloseReason.INTERNAL_ERROR))
        await self._response.end_response()

    async def _fail(self, code: CloseReason, reason: str) -> None:
        self._parts.clear()
        await self._say(CloseConnection(code=code, reason=reason))
        await self._response.end_response()

    async def _say(self, event: WebSocketEvent) -> None:
        try:
            data = self._wsproto.send(event)
        except LocalProtocolError:
            # After a close frame nothing may follow.
            return
        await self._writer.write(data)

    async def _send_pings(self, interval: float) -> None:
        timeout = limits_of(self._facts.config).message_timeout
        with self._pinging:
            while not self.over:
                await trio.sleep(interval)
                # A ping is sent before the client is cut: two silent intervals mean that it did not even answer that.
                now = trio.current_time()
                silent = 0.0 if self._delivering else now - self._last_received_at
                if silent > 2 * interval:
                    await self._response.end_response()
                elif self._message_began_at is not None and now - self._message_began_at > timeout:
                    await self._fail(CloseReason.POLICY_VIOLATION, f"a message may take {timeout:g} seconds")
                else:
                    await self._say(Ping())

    async def _log_access(self, start: Message) -> None:
        summary = cast(ResponseSummary, cast(HTTPResponseStartEvent, start))
        await self._facts.config.log.access(cast(WWWScope, self.scope), summary, time() - self._began)


def checked_text(text: object) -> str:
    """Return the text of a message. Raises `TypeError` if it is none."""
    if not isinstance(text, str):
        raise TypeError(f"{text!r:.80} is no text")
    return text
