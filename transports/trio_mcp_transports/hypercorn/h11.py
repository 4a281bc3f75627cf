"""HTTP/1.1, and nothing else, on a guarded connection.

Hypercorn's own protocol class also switches to HTTP/2, by prior knowledge and by an h2c upgrade, on plain ports. Here
the first is answered 505 and the second ignored (RFC 9110, 7.8 allows it). A response head waits for the first body
bytes and goes out in one write with them, as ASGI asks of a server anyway; an app that fails before then has its 500.
While a request is in progress the connection is read on, so that a pipelined request cannot hide that the client left.
"""

# pyright: basic
# Hypercorn's own types are partial.
from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import chain, groupby
from typing import Final, TypeAlias, cast

import h11
import trio
from hypercorn.events import Closed, RawData, Updated
from hypercorn.protocol.events import Body, Data, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.events import Event as StreamEvent
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol, H11WSConnection
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.typing import ConnectionState, H11SendableEvent, TaskGroup

from ..asgi.exchange import expire
from ..asgi.messages import CONNECTION_KEY
from .exchange import ConnectionTasks
from .streams import GuardedHTTPStream, GuardedWSStream

Address: TypeAlias = tuple[str, int] | None
WriteNow: TypeAlias = Callable[[bytes], bool]

RESPONSE_500: Final = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
# These two are lists of tokens (RFC 9110, 5.6.2); hypercorn decodes them as ASCII and would fail on anything else.
ASCII_ONLY: Final = frozenset({b"connection", b"sec-websocket-protocol"})
# How long a body may be whose rest is read and discarded when its request was answered before it came.
MAX_DISCARDED_BYTES: Final = 64 * 1024
# Lines of a head. Each is kept as several objects while its request runs, however short it is.
MAX_HEADERS: Final = 100
# The parts of a response are joined into one write if none is larger.
MAX_JOINED_BYTES: Final = 64 * 1024


class GuardedH11Protocol(H11Protocol):
    """One connection's HTTP/1.1 state.

    Args:
        owner: the connection, which sends.
        client, server: the addresses of the two ends.

    Attributes:
        paused: a request is in progress and nothing more may be parsed before it has been answered.
    """

    stream: GuardedHTTPStream | GuardedWSStream | None

    def __init__(
        self, owner: TCPServer, tasks: ConnectionTasks, client: Address, server: Address, write_now: WriteNow
    ) -> None:
        config, context, send = owner.config, owner.context, owner.protocol_send
        # The application draws for the same connection. Its address would not do: a later one may have the same.
        state = ConnectionState({**owner.state, CONNECTION_KEY: tasks.account.connection})
        ssl = isinstance(owner.stream, trio.SSLStream)
        super().__init__(owner.app, config, context, cast(TaskGroup, tasks), state, ssl, client, server, send)
        self.paused = False
        self._write_now = write_now
        self._account = tasks.account
        self._head: h11.Response | None = None
        self._out: list[bytes] = []
        self._ahead = trio.CancelScope()
        self._short_body = False

    @property
    def peer_still_sending(self) -> bool:
        """Whether a close now could meet bytes of the client that are still under way."""
        if isinstance(self.connection, H11WSConnection):
            return self.stream is None or not isinstance(self.stream, GuardedWSStream) or self.stream.peer_still_sending
        return self.connection.their_state in (h11.SEND_BODY, h11.ERROR)

    @property
    def is_ending(self) -> bool:
        """Whether what is being sent is the end of a response."""
        return self.stream is not None and self.stream.ending

    @property
    def buffered(self) -> int:
        """The bytes received and not parsed yet."""
        return len(self.connection.trailing_data[0])

    async def read_ahead(self, receive: Callable[[], Awaitable[bytes]]) -> bytes | None:
        """Receive while paused, or longer; None if the request in progress was answered and `resume` is due."""
        # Without stored bytes `_recycle` wakes nobody.
        if not self.buffered:
            return await receive()
        with trio.CancelScope() as self._ahead:
            return await receive()
        return None

    async def resume(self) -> None:
        """Go on with what was stored."""
        await self._handle_events()

    # From the client

    def take(self, data: bytes) -> bytes:
        """Hand on what of received bytes can take the fast path; return the rest."""
        return self.stream.take(data) if isinstance(self.stream, GuardedWSStream) else data

    @property
    def turn_is_over(self) -> bool:
        """Whether other tasks should run before the fast path takes more."""
        stream = self.stream
        return isinstance(stream, GuardedWSStream) and stream.turn is not None and stream.turn.is_over

    async def next_turn(self) -> None:
        """Let other tasks run, until the fast path may take more."""
        stream = self.stream
        if isinstance(stream, GuardedWSStream) and stream.turn is not None and stream.turn.is_over:
            await stream.turn.pass_on()
        else:
            await trio.lowlevel.checkpoint()

    async def _handle_events(self) -> None:
        while await self._handle_next():
            pass

    async def _handle_next(self) -> bool:
        """Handle one event of what was received; False when no other can follow yet."""
        if self.connection.they_are_waiting_for_100_continue:
            await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))
        try:
            event = self.connection.next_event()
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
            return False
        if isinstance(event, h11.Request):
            await self._begin(event)
        elif event is h11.PAUSED:
            self.paused = True
            return False
        elif self.stream is None and self.connection.our_state is h11.DONE:
            return await self._discard(event)
        elif event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed) or self.stream is None:
            return False
        elif isinstance(event, h11.Data):
            await self.stream.handle(Body(stream_id=STREAM_ID, data=event.data))
        elif isinstance(event, h11.EndOfMessage):
            await self.stream.handle(EndBody(stream_id=STREAM_ID))
        elif isinstance(event, Data):
            await self.stream.handle(event)
        return True

    async def _discard(self, event: object) -> bool:
        """Drop a part of a body whose request was answered already; False when no other event can follow yet."""
        if isinstance(event, h11.EndOfMessage):
            await self._recycle()
        return isinstance(event, h11.Data | h11.EndOfMessage)

    async def _begin(self, request: h11.Request) -> None:
        """Start the exchange for a complete request head, or refuse it."""
        await self.send(Updated(idle=False))
        refusal, websocket = check_request(request, self.config.h11_max_incomplete_size)
        if refusal is not None:
            await self._refuse(refusal)
            return
        self.stream = self._new_stream(websocket)
        self._short_body = has_short_body(request)
        # Raw items keep the case of names; h11 itself lowers it, which is what ASGI asks for.
        headers = request.headers.raw_items() if self.config.h11_pass_raw_headers else list(request.headers)
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=headers,
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=request.target,
                state=self.connection_state,
            )
        )
        self.keep_alive_requests += 1
        await self.context.mark_request()

    def _new_stream(self, websocket: bool) -> GuardedHTTPStream | GuardedWSStream:
        if websocket:
            self.connection = H11WSConnection(cast(h11.Connection, self.connection))
        stream = (GuardedWSStream if websocket else GuardedHTTPStream)(
            self.app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        if isinstance(stream, GuardedWSStream):
            stream.write_now = self._write_now
            stream.account = self._account
        return stream

    async def _refuse(self, status: int) -> None:
        """Answer with `status` if an answer is still possible, and close."""
        # Once a part of an answer was written, a second status line would read as a part of its body.
        unanswered = self.connection.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        # First, so that an app that is running cannot answer as well.
        await self._close_stream()
        if unanswered:
            headers = [(b"content-length", b"0"), (b"connection", b"close"), *self.config.response_headers("h11")]
            self._head = h11.Response(status_code=status, headers=headers)
            self._serialise(h11.EndOfMessage())
            await self._flush()
        await self.send(Closed())

    # From the app

    async def stream_send(self, event: StreamEvent) -> None:
        if isinstance(event, Response) and event.status_code >= 200:
            self._head = h11.Response(status_code=event.status_code, headers=self._response_headers(event))
        elif isinstance(event, Body):
            self._serialise(h11.Data(data=event.data))
            # The last part of a body is flushed together with the end of the message: one write instead of two.
            if self.stream is None or not self.stream.ending:
                await self._flush()
        elif isinstance(event, EndBody):
            self._serialise(h11.EndOfMessage())
            await self._flush()
        elif isinstance(event, StreamClosed):
            await self._end_exchange()
        else:
            await super().stream_send(event)

    def _response_headers(self, event: Response) -> list[tuple[bytes, bytes]]:
        headers = list(chain(event.headers, self.config.response_headers("h11")))
        # Said in the head of the last answer, so that a client sends no further request into a connection that is about
        # to close (RFC 9112, 9.6).
        if (
            self.keep_alive_requests >= self.config.keep_alive_max_requests
            or self.context.terminated.is_set()
            or (self.connection.their_state is h11.SEND_BODY and not self._short_body)
        ) and (b"connection", b"close") not in headers:
            headers.append((b"connection", b"close"))
        return headers

    def _serialise(self, event: H11SendableEvent) -> None:
        """Append `event` to what the next flush writes, after the head if that is still held."""
        connection = self.connection
        if isinstance(connection, H11WSConnection):
            connection = connection.h11_connection
        # The head is held until the first bytes of the body, as ASGI asks of a server: both then share a write, and an
        # app that fails before can still have its 500.
        if self._head is not None:
            self._out += connection.send_with_data_passthrough(self._head) or []
            self._head = None
        try:
            self._out += connection.send_with_data_passthrough(event) or []
        except h11.LocalProtocolError:
            # After a protocol error of the client there may be no way left to frame an answer; it is dropped, and the
            # connection closed.
            if connection.their_state is not h11.ERROR:
                raise

    async def _flush(self) -> None:
        parts, self._out = self._out, []
        # A large body is written as it is: joined with its head, of which each line is a part, it would be there twice.
        if max(map(len, parts), default=0) > MAX_JOINED_BYTES:
            for large, group in groupby(parts, lambda part: len(part) > MAX_JOINED_BYTES):
                for data in group if large else (b"".join(group),):
                    await self.send(RawData(data=data))
        else:
            await self.send(RawData(data=b"".join(parts)))

    async def _end_exchange(self) -> None:
        if self._head is None and not self._out:
            await self._maybe_recycle()
            return
        # The app started a response and failed before a byte of it was written.
        self._head = None
        self._out = [RESPONSE_500]
        await self._flush()
        await self._close_stream()
        await self.send(Closed())

    async def _maybe_recycle(self) -> None:
        await self._close_stream()
        connection = self.connection
        if connection.our_state is not h11.DONE or self.context.terminated.is_set():
            await self.send(Closed())
        elif connection.their_state is h11.DONE:
            await self._recycle()
        elif self._short_body:
            # The client sends no other request before the rest of this body, which has the time of a head.
            await self.send(Updated(idle=True))
        else:
            await self.send(Closed())

    async def _recycle(self) -> None:
        """Make the connection ready for its next request."""
        self.connection.start_next_cycle()
        await self.send(Updated(idle=True))
        self.paused = False
        # Else the reader goes on waiting for the next request: to cancel its wait would cost more than to parse one.
        if self.buffered:
            expire(self._ahead)


def has_short_body(request: h11.Request) -> bool:
    """Whether the head promises so short a body that its rest may be read and discarded."""
    framing = {name: value for name, value in request.headers if name in {b"content-length", b"transfer-encoding"}}
    return b"transfer-encoding" not in framing and int(framing.get(b"content-length", 0)) <= MAX_DISCARDED_BYTES


def check_request(request: h11.Request, max_head: int) -> tuple[int | None, bool]:
    """The status to refuse `request` with, or None; and whether it asks for a WebSocket."""
    if len(request.headers) > MAX_HEADERS:
        return 431, False
    length = len(request.target)
    upgrade = connection = b""
    framings = 0
    for name, value in request.headers:
        length += len(name) + len(value)
        if name in ASCII_ONLY and not value.isascii():
            return 400, False
        if name == b"upgrade":
            upgrade = value
        elif name == b"connection":
            connection += b"," + value
        elif name == b"content-length" or name == b"transfer-encoding":
            framings += 1
    if not request.http_version.startswith(b"1."):
        return 505, False
    # h11 applies its limit to a head that is incomplete. One that came whole in a single read was never measured.
    if length > max_head:
        return 431, False
    # Two ways to frame one body: RFC 9112, 6.1 lets a server refuse what request smuggling needs.
    if framings > 1:
        return 400, False
    websocket = (
        request.method == b"GET"
        and upgrade.strip().lower() == b"websocket"
        and any(token.strip() == b"upgrade" for token in connection.lower().split(b","))
    )
    return None, websocket
