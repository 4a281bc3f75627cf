"""HTTP/1.1, and nothing else, on one connection (RFC 9112): where its requests begin and end, one after the other.

A plain POST or GET goes the *direct way*: one pattern reads its head, the application processes it in the step of the reader, and
its response is written from where its call ends, without ASGI messages and a task. All other requests go the *long way*: h11
reads them, and the application runs in a task. The direct way rejects nothing. A request that has not come whole, that the
pattern does not match or that the application does not take goes the long way with the same bytes, so every rejection is written
once.

HTTP/2 by prior knowledge is answered 505, and an h2c upgrade ignored (RFC 9110, 7.8 allows it). While a request is in progress
the connection is read on, so that a pipelined request cannot hide that the client left.
"""

from __future__ import annotations

import logging
from contextvars import copy_context
from functools import partial
from typing import Final, Protocol

import h11
import trio

from trio_mcp.runtime import Account

from ..asgi.direct import DirectApp, DirectRequest
from ..asgi.exchange import expire
from ..asgi.messages import CONNECTION_KEY, Respond
from .config import COPIES
from .exchange import ConnectionFacts, HttpExchange, app_call, directly_served, http_scope, own_app, run_app
from .inbox import MAX_QUEUED_MESSAGES, Inbox
from .open_request import OpenRequest
from .request_head import MAX_HEAD, RequestHead, check_request, has_short_body, read_head, resolve_target
from .response import Response, Writer, says_close
from .websocket import WebSocketExchange

REFUSED: Final = "a request that is not valid HTTP was answered with %d; it came from %s"
# How long a request may be, and how many seconds it may take, that has not come with its head; else it goes the long way, where
# its time is limited too.
MAX_AWAITED_BYTES: Final = 1 << 16
AWAITED_SECONDS: Final = 1.0


class Owner(Protocol):
    """The connection, to which the deadlines belong."""

    def set_idle(self, idle: bool) -> None:
        """Note that a request begins, or that its response has been written."""

    def settle_deadline(self) -> None:
        """Let no deadline end what is done next but that of the request, or of its head."""

    async def receive(self) -> bytes:
        """Receive bytes; b"" at the end of the connection."""
        ...

    def limit_reading(self, seconds: float) -> None:
        """End the connection after so many seconds, unless `break_silence` finds something to do or a request begins."""

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
        websocket: what the connection has become; None while it is none.
    """

    __slots__ = (
        "_ahead",
        "_app",
        "_context",
        "_exchange",
        "_nursery",
        "_owner",
        "_parser",
        "_reading_ahead",
        "_requests",
        "_response",
        "_short_body",
        "account",
        "facts",
        "paused",
        "websocket",
        "writer",
    )

    def __init__(
        self, facts: ConnectionFacts, owner: Owner, writer: Writer, account: Account, nursery: trio.Nursery
    ) -> None:
        self.paused = False
        self.facts = facts
        self.writer = writer
        self.account = account
        self._owner = owner
        self._nursery = nursery
        # An actor may be what starts a task here; its context variables are none of that task's business.
        self._context = copy_context()
        self._app = directly_served(facts)
        self._parser: h11.Connection | None = None
        """Of a request that has not come whole."""
        self._ahead = bytearray()
        """What came while paused."""
        self._reading_ahead: trio.CancelScope | None = None
        self._exchange: HttpExchange | OpenRequest | WebSocketExchange | None = None
        self._response: Response | None = None
        """To the request that h11 has read, until the next one."""
        self.websocket: WebSocketExchange | None = None
        self._requests = 0
        self._short_body = False

    @property
    def peer_still_sending(self) -> bool:
        """Whether a close now could meet bytes of the client that are still under way."""
        if self.websocket is not None:
            return self.websocket.peer_still_sending
        return self._parser is not None and self._parser.their_state in (h11.SEND_BODY, h11.ERROR)

    @property
    def buffered(self) -> int:
        """The bytes that came while paused and were not parsed yet."""
        return len(self._ahead)

    async def read_ahead(self) -> bytes | None:
        """Receive while paused and something is buffered; None if the request was answered, and that is to be handled now."""
        with trio.CancelScope() as self._reading_ahead:
            return await self._owner.receive()
        return None

    def store(self, data: bytes) -> None:
        """Keep what came while paused."""
        self._ahead += data

    # From the client

    async def receive(self, data: bytes) -> None:
        """Handle what was stored, and received bytes; waits while the application has many unread."""
        if self._ahead:
            data, self._ahead = bytes(self._ahead) + data, bytearray()
        while data:
            # What is behind one request is stored.
            if self._app is not None and self._parser is None:
                head = read_head(data, min(MAX_HEAD, self.facts.config.h11_max_incomplete_size))
                if head is not None:
                    data = await self._take_directly(self._app, head, data)
            if data:
                await self._parse(data)
            if self.paused or not self._ahead:
                return
            data, self._ahead = bytes(self._ahead), bytearray()

    def break_silence(self) -> bool:
        """A request has been silent for as long as it may be; return whether there is one."""
        if not isinstance(self._exchange, OpenRequest):
            return False
        self._exchange.go_on()
        return True

    def lose_direct(self) -> None:
        """Tell the application that the connection is over, if a direct request is in progress."""
        if isinstance(self._exchange, OpenRequest):
            self._exchange.lose()

    async def lose(self) -> None:
        """Tell the application of the exchange in progress that the connection is over."""
        exchange, self._exchange = self._exchange, None
        if isinstance(exchange, OpenRequest):
            exchange = exchange.lose()
        if exchange is not None:
            await exchange.lose()

    # The direct way

    async def _take_directly(self, app: DirectApp, head: RequestHead, data: bytes) -> bytes:
        """Begin a request on the direct way and return b"", or return what came of it, for the long way."""
        self._owner.set_idle(False)
        self.paused = True
        self._requests += 1
        end = head.end + head.length
        awaited = COPIES * end if len(data) < end <= MAX_AWAITED_BYTES and self.account.has_room(COPIES * end) else 0
        try:
            if awaited:
                self.account.draw(awaited)
                data = await self._with_rest(data, end)
            if len(data) >= end:
                if app.may_wait:
                    self._owner.settle_deadline()
                    await app.wait()
                self._ahead += data[end:]
                if self._process(app, head, data[head.end : end]):
                    await self.facts.context.mark_request()
                    return b""
                self._ahead.clear()
        finally:
            if awaited:
                self.account.give_back(awaited)
        self.paused = False
        self._requests -= 1
        return data

    async def _with_rest(self, data: bytes, size: int) -> bytes:
        """Return `data` with what comes of its request in a moment: many clients send a body in another segment than its head."""
        self._owner.settle_deadline()
        with trio.move_on_after(AWAITED_SECONDS):
            while len(data) < size and (more := await self._owner.receive()):
                data += more
        return data

    def _process(self, app: DirectApp, head: RequestHead, body: bytes) -> bool:
        """Begin the response; False if the application does not take the request."""
        request = self._exchange = OpenRequest(self)
        asked = DirectRequest(
            head.method, head.target, head.headers, body, self.account.connection, request.receive, request.send
        )
        try:
            respond = app.process_directly(asked)
        except Exception as error:  # noqa: BLE001  as any other application that fails
            self.log_failure(error)
            request.fail()
            return True
        if respond is None:
            self._exchange = None
            return False
        request.begin(respond)
        return True

    def run(self, send: Respond) -> None:
        """Run `send` in a task of the connection."""
        self._context.run(self._nursery.start_soon, send)

    def limit_silence(self, seconds: float) -> None:
        """Have `break_silence` called after so many seconds, unless the request ends before."""
        self._owner.limit_reading(seconds)

    def log_failure(self, error: Exception) -> None:
        """Log what an application raised."""
        records = self.facts.connections.records
        records.log("the ASGI app failed in a http exchange", level=logging.ERROR, exc_info=error)

    # The long way

    async def _parse(self, data: bytes) -> None:
        """Let h11 read `data`, up to the end of one request."""
        parser = self._parser
        if parser is None:
            max_head = self.facts.config.h11_max_incomplete_size
            parser = self._parser = h11.Connection(h11.SERVER, max_incomplete_event_size=max_head)
        parser.receive_data(data)
        self._owner.settle_deadline()
        while await self._handle_next(parser):
            pass

    async def _handle_next(self, parser: h11.Connection) -> bool:
        """Handle one event of what was received; False when no other can follow yet."""
        response = self._response
        if parser.they_are_waiting_for_100_continue and response is not None and not response.began:
            await self.writer.write(parser.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint)
            return False
        exchange = self._exchange
        if isinstance(event, h11.Request):
            return await self._begin(parser, event)
        if isinstance(event, h11.Data):
            # Of a request that was answered already, it is dropped.
            if isinstance(exchange, HttpExchange):
                await exchange.receive_body(bytes(event.data), more=True)
            return True
        if isinstance(event, h11.EndOfMessage):
            self._parser = None
            self._ahead += parser.trailing_data[0]
            if isinstance(exchange, HttpExchange):
                self.paused = True
                await exchange.receive_body(b"", more=False)
            else:
                self._go_on()
        return False

    async def _begin(self, parser: h11.Connection, request: h11.Request) -> bool:
        """Start the exchange for a complete request head, or refuse it; False when nothing else is parsed."""
        facts = self.facts
        self._owner.set_idle(False)
        self._owner.settle_deadline()
        refusal, is_websocket = check_request(request, facts.config.h11_max_incomplete_size)
        if refusal is None:
            refusal, request = resolve_target(request, is_tls=facts.tls)
        if refusal is not None:
            await self._refuse(refusal)
            return False
        self._short_body = has_short_body(request)
        self._requests += 1
        is_newest = request.http_version >= b"1.1"
        keeps_alive = is_newest and not says_close(request.headers)
        response = self._response = Response(
            self, keeps_alive=keeps_alive, is_head=request.method == b"HEAD", takes_chunks=is_newest
        )
        await facts.context.mark_request()
        if is_websocket:
            await self._upgrade(parser, request, response)
            return False
        inbox = Inbox(facts.config.max_app_queue_size, self.account)
        exchange = self._exchange = HttpExchange(facts, http_scope(facts, request), inbox, response)
        await self._start(exchange, request)
        return True

    async def _upgrade(self, parser: h11.Connection, request: h11.Request, response: Response) -> None:
        """Go on with a request for a WebSocket, which takes all that is to come on the connection."""
        self._parser = None
        inbox = Inbox(MAX_QUEUED_MESSAGES, self.account)
        await inbox.put({"type": "websocket.connect"})
        parts = (self.facts, request, inbox, response, self.writer, self.account, self._owner.receive, self._nursery)
        exchange = WebSocketExchange(*parts, is_direct=own_app(self.facts.app) is not None)
        self.websocket = self._exchange = exchange
        await (self._start(exchange, request) if exchange.is_valid else exchange.refuse(400))
        if parser.trailing_data[0]:
            await exchange.refuse_early()

    async def _start(self, exchange: HttpExchange | WebSocketExchange, request: h11.Request) -> None:
        """Start the application of an exchange, unless the request is for another host."""
        facts = self.facts
        names = facts.config.server_names
        if names and not any(name == b"host" and value.decode("latin-1") in names for name, value in request.headers):
            await exchange.refuse(404)
            return
        # The application draws for the same connection. Its address would not do: a later one may have the same.
        exchange.scope["state"][CONNECTION_KEY] = self.account.connection
        call = app_call(facts.app, exchange.scope, exchange.inbox, exchange.send)
        run = partial(run_app, call, exchange.scope["type"], exchange.inbox, exchange.end, facts.connections.records)
        if isinstance(exchange, WebSocketExchange) and exchange.is_direct:
            exchange.run_app = run
        else:
            self._nursery.start_soon(run)

    async def _refuse(self, status: int) -> None:
        """Answer with `status` if an answer is still possible, log that, and close."""
        # No application has seen the request, so that it is in no access log.
        self.facts.connections.records.log(REFUSED, status, (self.facts.client or "?")[0], level=logging.INFO)
        # Once a part of an answer was written, a second status line would read as a part of its body.
        is_answered = self._response is not None and self._response.began
        # First, so that an app that is running cannot answer as well.
        await self.lose()
        if not is_answered:
            response = Response(self, keeps_alive=False)
            response.set_head(status, [(b"content-length", b"0"), (b"connection", b"close")])
            await response.send_body(b"", more=False)
        await self._owner.close()

    # The ends of responses

    @property
    def is_last(self) -> bool:
        """Whether the connection is closed after the response in progress."""
        config, context = self.facts.config, self.facts.context
        if self._requests >= config.keep_alive_max_requests or context.terminated.is_set():
            return True
        # Its request has not come whole, and what is left of it is more than may be read and discarded.
        return self._parser is not None and not self._short_body

    def own_head(self) -> bytes:
        """Return the fields that every response has."""
        return self.facts.connections.own_head(self.facts.config)

    def end(self, *, closes: bool) -> None:
        """Go on after a response that was written without a task."""
        self._exchange = None
        if closes or self.facts.context.terminated.is_set():
            self._owner.end()
        else:
            self._go_on()

    async def end_response(self, *, closes: bool) -> None:
        """Go on with the next request, or close the connection."""
        await self.lose()
        if closes or self.websocket is not None or self.facts.context.terminated.is_set():
            await self._owner.close()
        elif self._parser is None:
            self._go_on()
        elif self._short_body:
            # The client sends no other request before the rest of this body, which has the time of a head.
            self._owner.set_idle(True)
        else:
            await self._owner.close()

    def _go_on(self) -> None:
        self._response = None
        self._owner.set_idle(True)
        self.paused = False
        # Else the reader goes on waiting for the next request: to cancel its wait would cost more than to parse one.
        if self._ahead and self._reading_ahead is not None:
            expire(self._reading_ahead)
