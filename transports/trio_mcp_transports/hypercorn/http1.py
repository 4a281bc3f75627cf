"""HTTP/1.1, and nothing else, on one connection (RFC 9112), by h11.

HTTP/2 by prior knowledge is answered 505, and an h2c upgrade ignored (RFC 9110, 7.8 allows it). A response head waits for the
first body bytes and goes out in one write with them, as ASGI asks of a server; an app that fails before then has its 500. While a
request is in progress the connection is read on, so that a pipelined request cannot hide that the client left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import groupby
from typing import Protocol

import h11
import trio

from trio_mcp.runtime import Account

from ..asgi.exchange import expire
from ..asgi.messages import CONNECTION_KEY, Headers
from .apps import directly_served, own_app
from .connections import connections_of
from .direct import DirectWay
from .exchange import RESPONSE_500, ConnectionFacts, HttpExchange, http_scope, run_app
from .inbox import MAX_QUEUED_MESSAGES, Inbox
from .request_checks import check_request, has_short_body
from .websocket import WebSocketExchange
from .writes import MAX_JOINED_BYTES, Writer


class Owner(Protocol):
    """The connection, to which the deadlines belong."""

    def set_idle(self, idle: bool) -> None:
        """Note that a request begins, or that its response has been written."""

    def settle_deadline(self) -> None:
        """Let no deadline end what is done next but that of the request, or of its head."""

    async def receive(self) -> bytes:
        """Receive bytes; b"" at the end of the connection."""
        ...

    def limit_silence(self, seconds: float) -> None:
        """Call `break_silence` after so many seconds of the request in progress."""

    def end(self) -> None:
        """Read nothing more, and close the connection."""

    async def close(self) -> None:
        """Close the connection, with a moment for a client that is still sending."""


class Http1:
    """What one connection says in HTTP/1.1.

    Args:
        account: of the connection.
        nursery: of the connection, for the applications.

    Attributes:
        paused: a request is in progress and nothing more may be parsed before it has been answered.
    """

    def __init__(
        self, facts: ConnectionFacts, owner: Owner, writer: Writer, account: Account, nursery: trio.Nursery
    ) -> None:
        self.paused = False
        self._facts = facts
        self._owner = owner
        self._writer = writer
        self._account = account
        self._nursery = nursery
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=facts.config.h11_max_incomplete_size)
        self._is_fed = False
        """h11 has a part of a request."""
        self._exchange: HttpExchange | WebSocketExchange | None = None
        self._requests = 0
        self.websocket: WebSocketExchange | None = None
        self._run_reader: Callable[[], Awaitable[None]] | None = None
        """Runs the application of the WebSocket, which reads the connection."""
        self._head: h11.Response | h11.InformationalResponse | None = None
        self._out: list[bytes] = []
        self._ahead = trio.CancelScope()
        self._short_body = False
        app = directly_served(facts)
        self._direct = None if app is None else DirectWay(facts, app, self, writer, account, nursery)

    @property
    def peer_still_sending(self) -> bool:
        """Whether a close now could meet bytes of the client that are still under way."""
        if self.websocket is not None:
            return self.websocket.peer_still_sending
        return self._h11.their_state in (h11.SEND_BODY, h11.ERROR)

    @property
    def buffered(self) -> int:
        """The bytes received and not parsed yet."""
        return 0 if self.websocket is not None or not self._is_fed else len(self._h11.trailing_data[0])

    async def read_ahead(self, receive: Callable[[], Awaitable[bytes]]) -> bytes | None:
        """Receive while paused, or longer; None if the request in progress was answered and `resume` is due."""
        # Without stored bytes `_recycle` wakes nobody.
        if not self.buffered:
            return await receive()
        with trio.CancelScope() as self._ahead:
            return await receive()
        return None

    def store(self, data: bytes) -> None:
        """Keep what came while paused."""
        self._give(data)

    async def resume(self) -> None:
        """Go on with what was stored."""
        await self._parse()

    # From the client

    async def receive(self, data: bytes) -> None:
        """Handle received bytes; waits while the application has many unread."""
        if self._direct is not None and not self._is_fed:
            data = await self._direct.receive(data)
            if not data:
                return
        self._give(data)
        if not self.paused:
            await self._parse()

    def break_silence(self) -> bool:
        """A request has been silent for as long as it may be; return whether there is one."""
        return self._direct is not None and self._direct.break_silence()

    def lose_direct(self) -> None:
        """Tell the application that the connection is over, if a direct request is in progress."""
        if self._direct is not None:
            self._direct.lose()

    async def lose(self) -> None:
        """Tell the application of the exchange in progress that the connection is over."""
        exchange, self._exchange = self._exchange, None
        if exchange is None and self._direct is not None:
            exchange = self._direct.lose()
        if exchange is not None:
            await exchange.lose()

    def _give(self, data: bytes) -> None:
        self._is_fed = True
        self._h11.receive_data(data)

    async def _parse(self) -> None:
        self._owner.settle_deadline()
        while await self._handle_next():
            pass

    async def _handle_next(self) -> bool:
        """Handle one event of what was received; False when no other can follow yet."""
        if self._h11.they_are_waiting_for_100_continue:
            self._serialise(h11.InformationalResponse(status_code=100, headers=[]))
            await self._flush()
        try:
            event = self._h11.next_event()
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
            return False
        exchange = self._exchange
        if isinstance(event, h11.Request):
            return await self._begin(event)
        if event is h11.PAUSED:
            self.paused = True
            return False
        if exchange is None and self._h11.our_state is h11.DONE:
            return self._discard(event)
        if isinstance(event, h11.Data | h11.EndOfMessage) and isinstance(exchange, HttpExchange):
            is_end = isinstance(event, h11.EndOfMessage)
            await exchange.receive_body(
                b"" if isinstance(event, h11.EndOfMessage) else bytes(event.data), more=not is_end
            )
            return True
        return False

    def _discard(self, event: object) -> bool:
        """Drop a part of a body whose request was answered already; False when no other event can follow yet."""
        if isinstance(event, h11.EndOfMessage):
            self._recycle()
        return isinstance(event, h11.Data | h11.EndOfMessage)

    async def _begin(self, request: h11.Request) -> bool:
        """Start the exchange for a complete request head, or refuse it; False when nothing else is parsed."""
        facts = self._facts
        self._owner.set_idle(False)
        self._owner.settle_deadline()
        refusal, is_websocket = check_request(request, facts.config.h11_max_incomplete_size)
        if refusal is not None:
            await self._refuse(refusal)
            return False
        self._short_body = has_short_body(request)
        self._requests += 1
        await facts.context.mark_request()
        if is_websocket:
            await self._upgrade(request)
            return False
        inbox = Inbox(facts.config.max_app_queue_size, self._account)
        exchange = self._exchange = HttpExchange(facts, http_scope(facts, request), inbox, self)
        await self._start(exchange, request)
        return True

    async def _upgrade(self, request: h11.Request) -> None:
        """Go on with a request for a WebSocket, which takes all that is to come on the connection."""
        ahead, _ = self._h11.trailing_data
        inbox = Inbox(MAX_QUEUED_MESSAGES, self._account)
        parts = (self._facts, request, inbox, self, self._writer, self._account, self._owner.receive)
        exchange = WebSocketExchange(*parts, is_direct=own_app(self._facts.app) is not None)
        self.websocket = self._exchange = exchange
        if exchange.is_valid:
            await self._start(exchange, request)
        else:
            await exchange.refuse(400)
        if ahead:
            await exchange.refuse_early()

    async def serve_websocket(self) -> None:
        """Serve the WebSocket that was asked for to its end, in the task that reads the connection."""
        websocket = self.websocket
        if websocket is None or websocket.over:
            return
        if self._run_reader is not None:
            await self._run_reader()
        else:
            await websocket.pump()

    async def _start(self, exchange: HttpExchange | WebSocketExchange, request: h11.Request) -> None:
        """Start the application of an exchange, unless the request is for another host."""
        facts = self._facts
        names = facts.config.server_names
        if names and not any(name == b"host" and value.decode("latin-1") in names for name, value in request.headers):
            await exchange.refuse(404)
            return
        # The application draws for the same connection. Its address would not do: a later one may have the same.
        exchange.scope["state"][CONNECTION_KEY] = self._account.connection
        await exchange.begin(self._nursery)
        records = connections_of(facts.config).records
        run = partial(run_app, facts.app, exchange.scope, exchange.inbox, exchange.send, exchange.end, records)
        if isinstance(exchange, WebSocketExchange) and exchange.is_direct:
            self._run_reader = run
        else:
            self._nursery.start_soon(run)

    async def _refuse(self, status: int) -> None:
        """Answer with `status` if an answer is still possible, and close."""
        # Once a part of an answer was written, a second status line would read as a part of its body.
        unanswered = self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE)
        # First, so that an app that is running cannot answer as well.
        await self.lose()
        if unanswered:
            headers = [(b"content-length", b"0"), (b"connection", b"close"), *self._own_headers()]
            self._head = h11.Response(status_code=status, headers=headers)
            self._serialise(h11.EndOfMessage())
            await self._flush()
        await self._owner.close()

    # From the application

    def set_head(self, status: int, headers: Headers) -> None:
        """Hold the head of a response until the first bytes of its body."""
        head = [*headers, *self._own_headers()]
        # Said in the head of the last answer, so that a client sends no further request into a connection that is about
        # to close (RFC 9112, 9.6).
        is_last = self.is_last_direct() or (self._h11.their_state is h11.SEND_BODY and not self._short_body)
        if is_last and (b"connection", b"close") not in head:
            head.append((b"connection", b"close"))
        self._head = h11.Response(status_code=status, headers=head)

    async def accept(self, headers: Headers) -> None:
        """Switch protocols (101)."""
        self._head = h11.InformationalResponse(status_code=101, headers=[*headers, *self._own_headers()])
        self._serialise(None)
        await self._flush()

    async def send_body(self, data: bytes, *, more: bool) -> None:
        """Write a part of a body, after the head if that is still held; the last one goes out with the end of the message."""
        if data or more:
            self._serialise(h11.Data(data=data))
        if not more:
            self._serialise(h11.EndOfMessage())
        await self._flush(last=not more)

    async def end_response(self) -> None:
        """Go on with the next request, or close the connection."""
        await self.lose()
        if self.websocket is not None or self._h11.our_state is not h11.DONE or self._facts.context.terminated.is_set():
            await self._owner.close()
        elif self._h11.their_state is h11.DONE:
            self._recycle()
        elif self._short_body:
            # The client sends no other request before the rest of this body, which has the time of a head.
            self._owner.set_idle(True)
        else:
            await self._owner.close()

    async def fail(self) -> None:
        """The application has ended without a whole response: it is answered 500 if nothing was written."""
        if self._head is not None or self._out or self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._head = None
            self._out = [RESPONSE_500]
            await self._flush()
        await self.lose()
        await self._owner.close()

    def _own_headers(self) -> list[tuple[bytes, bytes]]:
        return self._facts.config.response_headers("h11")

    def _serialise(self, event: h11.Data | h11.EndOfMessage | h11.InformationalResponse | None) -> None:
        """Append `event` to what the next flush writes, after the head if that is still held."""
        # The head is held until the first bytes of the body, as ASGI asks of a server: both then share a write, and an
        # app that fails before can still have its 500.
        head, self._head = self._head, None
        if head is not None:
            self._out += self._h11.send_with_data_passthrough(head) or []
        try:
            if event is not None:
                self._out += self._h11.send_with_data_passthrough(event) or []
        except h11.LocalProtocolError:
            # After a protocol error of the client there may be no way left to frame an answer; it is dropped, and the
            # connection closed.
            if self._h11.their_state is not h11.ERROR:
                raise

    async def _flush(self, *, last: bool = False) -> None:
        parts, self._out = self._out, []
        # A large body is written as it is: joined with its head, of which each line is a part, it would be there twice.
        if max(map(len, parts), default=0) > MAX_JOINED_BYTES:
            for large, group in groupby(parts, lambda part: len(part) > MAX_JOINED_BYTES):
                for data in group if large else (b"".join(group),):
                    await self._writer.write(data)
        elif parts:
            await self._writer.write(b"".join(parts), last=last)

    # Of the direct way

    def begin_direct(self) -> None:
        """Note that a request begins: nothing more is parsed before its end."""
        self._owner.set_idle(False)
        self.paused = True
        self._requests += 1

    def settle_deadline(self) -> None:
        """Let no deadline end what is done next, which waits for something else than the client."""
        self._owner.settle_deadline()

    async def receive_more(self) -> bytes:
        """Receive what comes next of the request that has begun."""
        return await self._owner.receive()

    def leave_direct(self) -> None:
        """Note that the request that has begun goes the long way."""
        self.paused = False
        self._requests -= 1

    def limit_silence(self, seconds: float) -> None:
        """Have `break_silence` called after so many seconds, unless the request ends before."""
        self._owner.limit_silence(seconds)

    def is_last_direct(self) -> bool:
        """Return whether the connection is closed after the response in progress, whatever the client sends."""
        config, context = self._facts.config, self._facts.context
        return self._requests >= config.keep_alive_max_requests or context.terminated.is_set()

    def end_direct(self, *, closes: bool) -> None:
        """Go on with the next request, or close the connection."""
        if closes or self._facts.context.terminated.is_set():
            self._owner.end()
        else:
            self._go_on()

    def _recycle(self) -> None:
        """Make the connection ready for its next request."""
        self._h11.start_next_cycle()
        self._is_fed = bool(self._h11.trailing_data[0])
        self._go_on()

    def _go_on(self) -> None:
        self._owner.set_idle(True)
        self.paused = False
        # Else the reader goes on waiting for the next request: to cancel its wait would cost more than to parse one.
        if self.buffered:
            expire(self._ahead)
