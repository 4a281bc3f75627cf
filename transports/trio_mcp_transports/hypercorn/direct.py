"""The direct way of a POST: from the bytes of a connection to the application and back, without h11 and without a task.

Nothing is refused here. A request that has not come whole, that the pattern does not match or that the application does not take
goes the long way with the same bytes: by h11, and as ASGI messages. What it costs to be written once is written there.

| a request          | event                               | next                                                        |
|--------------------|-------------------------------------|-------------------------------------------------------------|
| begins             | the application takes it            | open, or known at once                                      |
| open, no task      | its whole response is known         | written from where its call ends; over                      |
| open, no task      | there is something to send before   | open, with a task that sends it as ASGI messages            |
| open, no task      | silence, for as long as it may last | open, with a task                                           |
| open, no task      | the client leaves                   | over; the application loses its client                      |
| open, with a task  | the last part is written            | over                                                        |
| open, with a task  | the client leaves                   | over; the task receives the disconnect                      |
"""

from __future__ import annotations

import logging
from contextvars import copy_context
from functools import partial
from time import time
from typing import Final, Protocol

import trio

from trio_mcp.runtime import Account

from ..asgi.direct import DirectApp, DirectRequest, KnownResponse, OpenResponse
from ..asgi.fast_path import RequestEvents
from ..asgi.messages import Headers, Message, Respond
from .connections import connections_of
from .exchange import RESPONSE_500, ConnectionFacts, HttpExchange, run_respond
from .inbox import Inbox
from .request_head import MAX_HEAD, RequestHead, read_head
from .writes import MAX_JOINED_BYTES, Writer

# How long a body may be, and how many seconds it may take, that has not come with its head; else it goes the long way, where its
# time is limited too.
MAX_AWAITED_BYTES: Final = 1 << 16
AWAITED_SECONDS: Final = 1.0
# Of what is received, at a time.
COPIES: Final = 3


class DirectOwner(Protocol):
    """The connection, as far as a direct request is concerned."""

    def begin_direct(self) -> None:
        """Note that a request begins: nothing more is parsed before its end."""

    def settle_deadline(self) -> None:
        """Let no deadline end what is done next; to be called before anything is awaited."""

    async def receive_more(self) -> bytes:
        """Receive what comes next of the request that has begun; b"" at the end of the connection."""
        ...

    def leave_direct(self) -> None:
        """Note that the request that has begun goes the long way."""

    def limit_silence(self, seconds: float) -> None:
        """Have `DirectWay.break_silence` called after so many seconds, unless the request ends before."""

    def is_last_direct(self) -> bool:
        """Return whether the connection is closed after this response."""
        ...

    def end_direct(self, *, closes: bool) -> None:
        """Note that the response has been written."""


class DirectWay:
    """The direct way of one connection, which takes one request at a time.

    Args:
        account: of the connection.
        nursery: of the connection.
    """

    def __init__(
        self,
        facts: ConnectionFacts,
        app: DirectApp,
        owner: DirectOwner,
        writer: Writer,
        account: Account,
        nursery: trio.Nursery,
    ) -> None:
        self.facts = facts
        self.owner = owner
        self.writer = writer
        self.account = account
        # An actor may be what starts a task here; its context variables are none of that task's business.
        self._context = copy_context()
        self._nursery = nursery
        self.request: OpenRequest | None = None
        self._app = app
        self._own_head = b""
        self._own_head_time = 0
        self._max_head = min(MAX_HEAD, facts.config.h11_max_incomplete_size)

    async def receive(self, data: bytes) -> bytes:
        """Take the request that `data` begins with, and return what comes after it; all of it goes the long way otherwise."""
        head = read_head(data, self._max_head)
        if head is None:
            return data
        self.owner.begin_direct()
        end = head.end + head.length
        if len(data) >= end:
            return await self._process(head, data, end)
        if end <= MAX_AWAITED_BYTES and self.account.has_room(COPIES * end):
            self.account.draw(COPIES * end)
            try:
                data = await self._with_rest(data, end)
                if len(data) >= end:
                    return await self._process(head, data, end)
            finally:
                self.account.give_back(COPIES * end)
        self.owner.leave_direct()
        return data

    async def _with_rest(self, data: bytes, size: int) -> bytes:
        """Return `data` with what comes of its request in a moment: many clients send a body in another segment than its head."""
        self.owner.settle_deadline()
        with trio.move_on_after(AWAITED_SECONDS):
            while len(data) < size and (more := await self.owner.receive_more()):
                data += more
        return data

    async def _process(self, head: RequestHead, data: bytes, end: int) -> bytes:
        request = OpenRequest(self, data[head.end : end])
        asked = DirectRequest(
            head.target.decode("ascii"), head.headers, self.account.connection, request.receive, request.send
        )
        if self._app.may_wait:
            self.owner.settle_deadline()
        try:
            respond = await self._app.process_directly(asked)
        except Exception as error:  # noqa: BLE001  as any other application that fails
            self.log_failure(error)
            request.fail()
            return b""
        if respond is None:
            self.owner.leave_direct()
            return data
        await self.facts.context.mark_request()
        self.request = request
        request.begin(respond)
        return data[end:]

    def break_silence(self) -> bool:
        """The time of `limit_silence` is over; return whether a request is in progress, which may take its time from then on."""
        if self.request is not None:
            self.request.go_on()
        return self.request is not None

    def lose(self) -> HttpExchange | None:
        """The connection is over; return the exchange that is to be told, if a task has one."""
        request, self.request = self.request, None
        return None if request is None else request.lose()

    def end(self, *, closes: bool) -> None:
        """The response to the request has been written."""
        self.request = None
        self.owner.end_direct(closes=closes)

    def run(self, send: Respond) -> None:
        """Run `send` in a task of the connection."""
        self._context.run(self._start_soon, send)

    def _start_soon(self, send: Respond) -> None:
        self._nursery.start_soon(send)

    def own_head(self) -> bytes:
        """Return the fields that every response has; they change once a second, with its date."""
        now = int(time())
        if now != self._own_head_time:
            self._own_head_time = now
            self._own_head = fields_bytes(self.facts.config.response_headers("h11"))
        return self._own_head

    def log_failure(self, error: Exception) -> None:
        records = connections_of(self.facts.config).records
        records.log("the ASGI app failed in a http exchange", level=logging.ERROR, exc_info=error)


class OpenRequest(RequestEvents):
    """One request, from the time it has come whole until its response has been written."""

    __slots__ = ("_body", "_exchange", "_inbox", "_response", "_way")

    def __init__(self, way: DirectWay, body: bytes) -> None:
        self._way = way
        self._body: bytes | None = body
        self._response: OpenResponse | None = None
        """Without a task; None once there is one, and at the end."""
        self._exchange: HttpExchange | None = None
        """Of the task."""
        self._inbox: Inbox | None = None

    def begin(self, respond: Respond) -> None:
        """Write the response if it is known; else wait for something to write, without a task if that can be."""
        if isinstance(respond, KnownResponse):
            self._write(respond, None)
        elif isinstance(respond, OpenResponse):
            self._response = respond
            if respond.watch(self._on_ready):
                self._way.owner.limit_silence(respond.max_silence)
            else:
                self._on_ready()
        else:
            self._start(respond)

    def go_on(self) -> None:
        """Send the response in a task, unless there is one or the response is known."""
        response, self._response = self._response, None
        if response is not None:
            self._start(response)

    def lose(self) -> HttpExchange | None:
        """The client has gone; return the exchange of the task, which has to be told."""
        response, self._response = self._response, None
        if response is not None:
            response.lose()
        return self._exchange

    def fail(self) -> None:
        """Answer 500, and close."""
        self._way.writer.write_or_start(RESPONSE_500, partial(self._way.end, closes=True))

    # The response in one write

    def _on_ready(self) -> None:
        response, self._response = self._response, None
        if response is None:
            return
        # Called by the actor that ends or says something, to which nothing that fails here belongs.
        try:
            known = response.take_known()
        except Exception as error:  # noqa: BLE001
            self._way.log_failure(error)
            self.fail()
        else:
            if known is None:
                self._start(response)
            else:
                self._write(known, response)

    def _write(self, known: KnownResponse, response: OpenResponse | None) -> None:
        way = self._way
        # Joined with its head it would be there twice.
        if len(known.body) > MAX_JOINED_BYTES:
            self._start(partial(send_known, known, response))
            return
        closes = way.owner.is_last_direct()
        data = head_bytes(known.status, known.head, way.own_head(), closes=closes) + b"\r\n" + known.body
        way.writer.write_or_start(data, partial(self._end_known, response, closes=closes))

    def _end_known(self, response: OpenResponse | None, *, closes: bool) -> None:
        try:
            if response is not None:
                response.finish()
        except Exception as error:  # noqa: BLE001  see `_on_ready`
            self._way.log_failure(error)
            closes = True
        self._way.end(closes=closes)

    # The response in parts

    def _start(self, respond: Respond) -> None:
        way = self._way
        self._inbox = Inbox(way.facts.config.max_app_queue_size, way.account)
        scope = {"type": "http", "method": "POST"}
        self._exchange = HttpExchange(way.facts, scope, self._inbox, DirectResponse(way))
        records = connections_of(way.facts.config).records
        way.run(partial(run_respond, respond, self._exchange, records))

    async def send(self, message: Message) -> None:
        """See `HttpExchange.send`."""
        assert self._exchange is not None
        await self._exchange.send(message)

    async def receive(self) -> Message:
        """Receive the disconnect; the body is taken by `whole_body`."""
        assert self._inbox is not None
        return await self._inbox.receive()

    # The events of the request

    def whole_body(self) -> bytes | None:
        body, self._body = self._body, None
        return body

    async def wait_disconnect(self) -> bool:
        assert self._inbox is not None
        return await self._inbox.wait_disconnect()

    def stop_waiting(self) -> None:
        if self._inbox is not None:
            self._inbox.stop_waiting()


async def send_known(known: KnownResponse, response: OpenResponse | None) -> None:
    """Send a whole response in parts."""
    try:
        await known()
    finally:
        if response is not None:
            response.finish()


class DirectResponse:
    """Writes the response of a task as h11 would."""

    def __init__(self, way: DirectWay) -> None:
        self._way = way
        self._head = b""
        self._began = False
        self._closes = False
        self._is_chunked = False

    async def accept(self, headers: Headers) -> None:
        """Never called: what asks for a WebSocket goes the long way."""
        raise NotImplementedError

    def set_head(self, status: int, headers: Headers) -> None:
        """Hold the head until the first bytes of the body."""
        owner = self._way.owner
        self._closes = owner.is_last_direct() or (b"connection", b"close") in headers
        self._is_chunked = not any(name.lower() == b"content-length" for name, _ in headers)
        self._head = head_bytes(status, headers, self._way.own_head(), closes=self._closes)
        self._head += b"Transfer-Encoding: chunked\r\n\r\n" if self._is_chunked else b"\r\n"

    async def send_body(self, data: bytes, *, more: bool) -> None:
        """Write a part of the body, after the head if that is still held."""
        head, self._head = self._head, b""
        self._began = True
        before, after = (b"%x\r\n" % len(data), b"\r\n") if data and self._is_chunked else (b"", b"")
        if not more and self._is_chunked:
            after += b"0\r\n\r\n"
        if len(data) > MAX_JOINED_BYTES:
            await self._way.writer.write(head + before)
            await self._way.writer.write(data)
            await self._way.writer.write(after, last=not more)
        else:
            await self._way.writer.write(head + before + data + after, last=not more)

    async def end_response(self) -> None:
        """Go on with the next request, or close the connection."""
        await self._end(closes=self._closes)

    async def fail(self) -> None:
        """Answer 500 if nothing was written, and close the connection."""
        if not self._began:
            await self._way.writer.write(RESPONSE_500)
        await self._end(closes=True)

    async def _end(self, *, closes: bool) -> None:
        exchange = self._way.lose()
        if exchange is not None:
            await exchange.lose()
        self._way.end(closes=closes)


def head_bytes(status: int, headers: Headers, own: bytes, *, closes: bool) -> bytes:
    """Return a head as h11 writes it, without the line that ends it.

    Args:
        own: the fields that every response has.
    """
    close = b"connection: close\r\n" if closes and (b"connection", b"close") not in headers else b""
    return b"HTTP/1.1 %d \r\n%b%b%b" % (status, fields_bytes(headers), own, close)


def fields_bytes(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in headers])
