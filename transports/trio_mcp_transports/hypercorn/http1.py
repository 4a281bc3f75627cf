"""HTTP/1.1, and nothing else, on one connection (RFC 9112): where its requests begin and end, one after the other.

One pattern reads the heads of usual requests, and h11 all others. The application answers in the task that reads the connection,
which does not read on meanwhile; its response is written from where its call ends, without a task. While a response is open the
connection is read on, so that a pipelined request cannot hide that the client left.

HTTP/2 by prior knowledge is answered 505, and an h2c upgrade ignored (RFC 9110, 7.8 allows it).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import copy_context
from functools import partial
from time import time
from types import coroutine
from typing import Any, Final, Protocol, TypeVar, cast
from urllib.parse import unquote

import h11
import trio
from hypercorn.typing import HTTPResponseStartEvent, ResponseSummary, WWWScope

from trio_mcp.runtime import Account

from ..asgi.access import Headers
from ..asgi.access_log import AccessRecord
from ..asgi.authentication import log_failures
from ..asgi.exchange import expire
from ..asgi.requests import NO_BODY, Body, Request
from ..asgi.responses import HttpApp, KnownResponse, OpenResponse, Response, Upgrade
from .body import CLOSE, ChunkedBody, SentBody
from .connections import ConnectionFacts
from .open_request import OpenRequest, ResponseNote
from .request_head import MAX_HEAD, RequestHead, check_request, head_of, read_head, resolve_target
from .response import CONTINUE, Writer, head_bytes, whole_response
from .websocket import Handshake, WebSocketExchange

REFUSED: Final = "a request that is not valid HTTP was answered with %d; it came from %s"

SENT: Final = (KnownResponse, OpenResponse)

T = TypeVar("T")


class Owner(Protocol):
    """The connection, to which the deadlines belong."""

    def begin_request(self) -> None:
        """Note that a request begins."""

    def end_request(self, *, in_message: bool) -> None:
        """Note that a response has been written, and whether something of the next request has come."""

    def settle_deadline(self) -> None:
        """Let no deadline end what is done next but that of the request, or of its head."""

    async def receive(self) -> bytes:
        """Receive bytes; b"" at the end of the connection."""
        ...

    def store(self, data: bytes) -> bool:
        """Keep what came before it was asked for; False if that is too much."""
        ...

    @property
    def may_store(self) -> bool:
        """Whether more may be received before it is asked for."""
        ...

    def limit_reading(self, seconds: float) -> None:
        """End the connection in `seconds`, unless `break_silence` finds something to do or a request begins."""

    def end(self) -> None:
        """Close the connection, with a moment for a client that is still sending."""


class Http1:
    """What one connection says in HTTP/1.1.

    Args:
        account: of the connection.
        nursery: of the connection, for its tasks.

    Attributes:
        ahead: what came and was not parsed yet.
        paused: a request is in progress and nothing more may be parsed before it has been answered.
        websocket: what the connection has become; None while it is none.
        peer_still_sending: whether a close now could meet bytes of the client that are still under way.
    """

    __slots__ = (
        "_app",
        "_context",
        "_discards",
        "_exchange",
        "_logged",
        "_max_head",
        "_nursery",
        "_owner",
        "_parser",
        "_reading_ahead",
        "_requests",
        "account",
        "ahead",
        "facts",
        "limit_silence",
        "paused",
        "peer_still_sending",
        "websocket",
        "writer",
    )

    def __init__(
        self, facts: ConnectionFacts, owner: Owner, writer: Writer, account: Account, nursery: trio.Nursery
    ) -> None:
        self.paused = False
        self.facts = facts
        self.writer = writer
        self.limit_silence = owner.limit_reading
        self.account = account
        self._owner = owner
        self._nursery = nursery
        # An actor may be what starts a task here; its context variables are none of that task's business.
        self._context = copy_context()
        self._app: HttpApp = facts.app
        self._parser: h11.Connection | None = None
        """Of a head that has not come whole."""
        self.ahead = bytearray()
        self._discards = 0
        """How many bytes of the body of an answered request are still to come."""
        self._reading_ahead: trio.CancelScope | None = None
        self._exchange: OpenRequest | None = None
        self.websocket: WebSocketExchange | None = None
        self._requests = 0
        self._max_head = min(MAX_HEAD, facts.config.h11_max_incomplete_size)
        self._logged: tuple[WWWScope, float] | None = None
        """The request in progress for hypercorn's access log, and when it began."""
        self.peer_still_sending = False

    @property
    def is_beginning(self) -> bool:
        """Whether there is a request that the application has not begun to respond to."""
        return self._exchange is not None and self.websocket is None and self._exchange.is_beginning

    async def read_ahead(self) -> bytes | None:
        """Receive while paused and something is buffered; None if the request was answered, and that is to be handled now."""
        with trio.CancelScope() as self._reading_ahead:
            return await self._owner.receive()
        return None

    def put_back(self, data: bytes) -> None:
        """Keep what came and is not to be parsed yet."""
        self.ahead += data

    # From the client

    async def receive(self, data: bytes) -> None:
        """Handle what was stored, and received bytes, up to the first request that is not answered at once."""
        while not self.paused:
            if self.ahead:
                data, self.ahead = bytes(self.ahead) + data, bytearray()
            if self._discards:
                data = self._without_discarded(data)
            if not data:
                return
            head = None if self._parser is not None else read_head(data, self._max_head)
            await (self._parse(data) if head is None else self._begin(head, data))
            data = b""
        self.ahead += data

    def _without_discarded(self, data: bytes) -> bytes:
        """Return what is behind the body of a request that was answered before it came."""
        size = min(self._discards, len(data))
        self._discards -= size
        if not self._discards:
            self._owner.end_request(in_message=bool(self.ahead))
        return data[size:]

    async def _parse(self, data: bytes) -> None:
        """Let h11 read a head that is none of the usual ones, or has not come whole."""
        max_head = self.facts.config.h11_max_incomplete_size
        parser = self._parser or h11.Connection(h11.SERVER, max_incomplete_event_size=max_head)
        parser.receive_data(data)
        self._parser = parser
        try:
            event = parser.next_event()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint)
            return
        if not isinstance(event, h11.Request):
            self._owner.settle_deadline()
            return
        self._parser = None
        refusal, is_websocket = check_request(event, max_head)
        if refusal is None:
            refusal, event = resolve_target(event, is_tls=self.facts.tls)
        if refusal is not None:
            self._refuse(refusal)
            return
        head = head_of(event, is_upgrade=is_websocket)
        if head.length is None:
            await self._begin(head, b"", ChunkedBody(self, head, parser))
        else:
            await self._begin(head, parser.trailing_data[0])

    async def _begin(self, head: RequestHead, data: bytes, body: SentBody | None = None) -> None:
        """Begin a request, let the application answer it, and begin the response.

        Args:
            data: what has come, with the body where the head says.
            body: if it is sent in chunks.
        """
        self._owner.begin_request()
        self.paused = True
        self._requests += 1
        whole = NO_BODY if body is None else None
        if head.length:
            end = head.end + head.length
            whole = Body(data[head.end : end]) if len(data) >= end else None
            body = None if whole is not None else SentBody(self, head)
            self.ahead += data[end if whole is not None else head.end :]
        elif len(data) > head.end:
            self.ahead += data[head.end :]
        is_last = self._requests >= self.facts.config.keep_alive_max_requests
        exchange = self._exchange = OpenRequest(self, head, body, is_last=is_last)
        request = self._request_of(head, whole or body or NO_BODY)
        if self.facts.context.max_requests is not None:
            await self.facts.context.mark_request()
        if self.facts.config.server_names and not self._is_for_this_host(request):
            exchange.begin(KnownResponse(404, headers=[CLOSE]))
        elif head.is_upgrade:
            await self._upgrade(exchange, request, is_newest=head.takes_chunks)
        else:
            response = await self._answered(exchange, request)
            # Nothing of the request is kept while its response is open.
            del request, body, whole, head, data
            if isinstance(response, SENT):
                exchange.begin(response)
            elif response is not None:
                exchange.fail()

    def _request_of(self, head: RequestHead, body: Body) -> Request:
        """Return a request as the application gets it."""
        facts = self.facts
        path, _, query = head.target.partition("?")
        request = Request(
            head.method,
            unquote(path) if "%" in path else path,
            head.headers,
            body,
            lines=head.lines,
            query=query,
            root_path=facts.root_path,
            scheme="https" if facts.tls else "http",
            client=facts.client,
            connection=self.account.connection,
            watch=self._watch,
        )
        if facts.is_logged:
            self._logged = logged_scope(facts, head, request), time()
        return request

    def _is_for_this_host(self, request: Request) -> bool:
        return (request.header("host") or "") in self.facts.config.server_names

    async def _answered(self, exchange: OpenRequest, request: Request) -> Response | None:
        """Return the response of the application, or None if it failed: then the request is answered."""
        response: Response | None = None
        try:
            response = await waited(self._app.respond(request), self._owner.settle_deadline)
        except BaseException:
            # As any other application that fails.
            with log_failures("the ASGI app failed in a http exchange", self.facts.connections.records):
                raise
        finally:
            if request.record is not None or self._logged is not None:
                self._note(exchange, request.record)
            # Also if the connection is cut.
            if response is None and not exchange.is_lost:
                exchange.fail()
        return response

    def _note(self, exchange: OpenRequest, record: AccessRecord | None) -> None:
        """Have the response noted in the access logs, or that there is none."""
        exchange.note = ResponseNote(record, self.log_response)
        if exchange.is_lost:
            exchange.note.end(is_complete=False)

    async def _watch(self, work: Coroutine[Any, Any, T], scope: trio.CancelScope) -> T:
        """See `Watch`. A separate task watches the client; it starts only if `work` has to wait."""
        watch = ClientWatch(self, self._owner, scope)
        try:
            return await waited(work, watch.start)
        finally:
            await watch.stop()  # noqa: ASYNC102  it has a shield, and waits for what it has cancelled

    def break_silence(self) -> bool:
        """A request has been silent for as long as it may be; return whether there is one."""
        if self._exchange is None:
            return False
        self._exchange.go_on()
        return True

    def lose(self) -> None:
        """Tell the application of the exchange in progress that the connection is over."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.lose()
        if self.websocket is not None:
            self.websocket.lose()

    # WebSockets

    async def _upgrade(self, exchange: OpenRequest, request: Request, *, is_newest: bool) -> None:
        """Go on with a request for a WebSocket, which takes all that is to come on the connection."""
        handshake = Handshake(request, is_newest=is_newest)
        # What came with it was sent before the handshake was accepted (RFC 6455, 4.1).
        has_body = request.header("transfer-encoding") is not None or request.header("content-length") not in (
            None,
            "0",
        )
        if not handshake.is_valid or self.ahead or has_body:
            self._refuse(400)
            return
        request.websocket = handshake.subprotocols
        response = await self._answered(exchange, request)
        if isinstance(response, Upgrade):
            self._accept(exchange, handshake, response, request.record)
        elif isinstance(response, KnownResponse):
            response.add_headers([] if CLOSE in response.headers else [CLOSE])
            exchange.begin(response)
        elif response is not None:
            exchange.fail()

    def _accept(
        self, exchange: OpenRequest, handshake: Handshake, upgrade: Upgrade, record: AccessRecord | None
    ) -> None:
        if self.ahead or exchange.is_lost:
            upgrade.lose()
            self._refuse(400)
            return
        # That of its head must not end the WebSocket.
        self._owner.settle_deadline()
        headers = [*handshake.answer(upgrade.subprotocol), *upgrade.headers]
        self.log_response(101, headers)
        websocket = WebSocketExchange(self, self._owner.receive, upgrade.serve, record)
        self.websocket, self._exchange = websocket, None
        self.paused = False
        head = head_bytes(101, headers, self._own_head()) + b"\r\n"
        if self.writer.write_or_start((head,), websocket.start_pings):
            websocket.start_pings()

    # To the client

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run `work` in a task of the connection."""
        self._context.run(self._nursery.start_soon, work)

    def log_failure(self, error: Exception) -> None:
        """Log what an application raised."""
        records = self.facts.connections.records
        records.log("the ASGI app failed in a http exchange", level=logging.ERROR, exc_info=error)

    def log_response(self, status: int | None, headers: Headers) -> None:
        """Log a response in the access log of hypercorn; None if there was none."""
        if self._logged is None:
            return
        (scope, began), self._logged = self._logged, None
        summary = None if status is None else {"status": status, "headers": [*headers]}
        # Its interface says that there always is a response, and hypercorn passes None for none.
        logged = cast(ResponseSummary, cast(HTTPResponseStartEvent, summary))
        self.run(partial(self.facts.config.log.access, scope, logged, time() - began))

    def log_refusal(self, status: int) -> None:
        """Log that what came is not valid HTTP. No application has seen it, so that it is in no access log."""
        client = (self.facts.client or "?")[0]
        self.facts.connections.records.log(REFUSED, status, client, level=logging.INFO)

    def _refuse(self, status: int) -> None:
        """Answer with `status`, log that, and close."""
        self.log_refusal(status)
        self.lose()
        self.paused = self.peer_still_sending = True
        refusal = whole_response(KnownResponse(status, headers=[CLOSE]), self._own_head(), closes=True)
        if self.writer.write_or_start(refusal, self._owner.end):
            self._owner.end()

    async def receive_more(self) -> bytes:
        """Receive bytes for the application, which awaits the body of its request; b"" at the end of the connection."""
        if self.ahead:
            data, self.ahead = bytes(self.ahead), bytearray()
            return data
        return await self._owner.receive()

    async def send_continue(self) -> None:
        """Tell the client to send the body."""
        await self.writer.write(CONTINUE)

    def _own_head(self) -> bytes:
        """Return the fields that every response has."""
        return self.facts.connections.own_head(self.facts.config)

    def end(self, discards: int | None, *, closes: bool) -> None:
        """Go on with the next request, or close the connection; see `RequestOwner`."""
        self._exchange = None
        if closes or discards is None or self.facts.context.terminated.is_set():
            self.peer_still_sending = discards != 0
            self._owner.end()
            return
        self._discards = discards
        self._owner.end_request(in_message=bool(self.ahead) or discards > 0)
        self.paused = False
        # Else the reader goes on waiting for the next request: to cancel its wait would cost more than to parse one.
        if self.ahead and self._reading_ahead is not None:
            expire(self._reading_ahead)

    def end_websocket(self) -> None:
        """Close the connection of a WebSocket."""
        if self.websocket is not None:
            self.peer_still_sending = self.websocket.peer_still_sending
            self.websocket.lose()
        self._owner.end()


class ClientWatch:
    """Reads the connection while the application waits for something that is of no use without a client.

    What comes is stored, as far as it may be. Beyond that it stays in the network, where the end of the client is not seen.
    """

    __slots__ = ("_ended", "_http", "_owner", "_reading", "_scope")

    def __init__(self, http: Http1, owner: Owner, scope: trio.CancelScope) -> None:
        self._http = http
        self._owner = owner
        self._scope = scope
        self._ended: trio.Event | None = None
        self._reading: trio.CancelScope | None = None

    def start(self) -> None:
        """Begin to read, in a task of the connection."""
        self._ended, self._reading = trio.Event(), trio.CancelScope()
        self._http.run(partial(self._read, self._reading, self._ended))

    async def stop(self) -> None:
        """Return when the connection is read no more."""
        if self._ended is not None and self._reading is not None:
            self._reading.cancel()
            # It is cancelled, so this is short.
            with trio.CancelScope(shield=True):
                await self._ended.wait()

    async def _read(self, reading: trio.CancelScope, ended: trio.Event) -> None:
        try:
            with reading:
                while self._owner.may_store:
                    data = await self._owner.receive()
                    if not (data and self._owner.store(data)):
                        self._http.lose()
                        self._scope.cancel()
                        # No response comes any more, and nothing else would close it.
                        self._owner.end()
                        return
        finally:
            ended.set()


@coroutine
def waited(work: Coroutine[Any, Any, T], on_wait: Callable[[], None]) -> Generator[Any, Any, T]:
    """Await `work`, and call `on_wait` before it waits for the first time, if it does.

    Most work does not: it needs no deadline, and no other task meanwhile. To find that out costs nothing here.
    """
    try:
        wanted = work.send(None)
        on_wait()
        while True:
            try:
                sent = yield wanted
            except BaseException as error:  # noqa: ASYNC103, BLE001  it is passed on
                wanted = work.throw(error)
            else:
                wanted = work.send(sent)
    except StopIteration as done:
        value: T = done.value
        return value


def logged_scope(facts: ConnectionFacts, head: RequestHead, request: Request) -> WWWScope:
    """Return what the access log of hypercorn reads of a request."""
    lines = head.lines or [
        (name.encode("latin-1"), value.encode("latin-1")) for name, value in (head.headers or {}).items()
    ]
    scope = {
        "type": "websocket" if head.is_upgrade else "http",
        "http_version": "1.1" if head.takes_chunks else "1.0",
        "method": head.method,
        "scheme": request.scheme,
        "path": request.path,
        "query_string": request.query.encode("latin-1"),
        "headers": lines,
        "client": facts.client,
    }
    return cast(WWWScope, scope)
