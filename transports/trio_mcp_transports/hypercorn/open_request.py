"""One request of the direct way, and its response.

| a request          | event                               | next                                                        |
|--------------------|-------------------------------------|-------------------------------------------------------------|
| begins             | the application takes it            | open, or known at once                                      |
| open, no task      | its whole response is known         | written from where its call ends; over                      |
| open, no task      | something is said before its end    | a part of a stream is written from there, or gathered       |
| open, no task      | its call ends a stream              | the answer is written from there, or with what was gathered |
| open, no task      | a part can only be had by waiting   | open, with a task that sends the rest as ASGI messages      |
| open, no task      | silence, for as long as it may last | a filler is written                                         |
| open, no task      | the client leaves                   | over; the application loses its client                      |
| open, with a task  | the last part is written            | over                                                        |
| open, with a task  | the client leaves                   | over; the task receives the disconnect                      |

Gathering: what is said is written before the call goes on if the last part was written `GATHERING_SECONDS` ago. Else it waits for
some turns of the event loop (`Gatherer`), and what is said meanwhile, the answer too, shares its write. While the kernel takes no
more, nothing is taken from the outbox, which then slows the call down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Final, Protocol

import trio

from trio_mcp.runtime import Account

from ..asgi.direct import KnownResponse, OpenResponse, StreamPart
from ..asgi.messages import Message, RequestEvents, Respond, send_or_reject
from .exchange import ConnectionFacts, HttpExchange, run_app
from .inbox import Inbox
from .response import MAX_JOINED_BYTES, RESPONSE_500, Response, ResponseOwner, whole_response

GATHERING_SECONDS: Final = 0.005
"""A call that speaks less often than this is written at once."""


class RequestOwner(ResponseOwner, Protocol):
    """The connection, as far as one request is concerned."""

    facts: ConnectionFacts
    account: Account

    def run(self, send: Respond) -> None:
        """Run `send` in a task of the connection."""

    def limit_silence(self, seconds: float) -> None:
        """Have `OpenRequest.go_on` called after so many seconds, unless the request ends before."""

    def log_failure(self, error: Exception) -> None:
        """Log an error that ends the response."""

    def end(self, *, closes: bool) -> None:
        """The response has been written without a task."""


class OpenRequest(RequestEvents):
    """One request, from the time it has come whole until its response has been written."""

    __slots__ = (
        "_exchange",
        "_inbox",
        "_is_gathering",
        "_is_writing",
        "_owner",
        "_response",
        "_stream",
        "_written_at",
    )

    def __init__(self, owner: RequestOwner) -> None:
        self._owner = owner
        self._response: OpenResponse | None = None
        """Without a task; None once there is one, and at the end."""
        self._exchange: HttpExchange | None = None
        """Of the task."""
        self._inbox: Inbox | None = None
        self._stream: Response | None = None
        """Writes the parts of a stream; None before the first."""
        self._is_writing = False
        """A part is being written; nothing else may be before its end."""
        self._is_gathering = False
        self._written_at = -inf

    def begin(self, respond: Respond) -> None:
        """Write the response if it is known; else wait for something to write, without a task if that can be."""
        if isinstance(respond, KnownResponse):
            self._write(respond, None)
        elif isinstance(respond, OpenResponse):
            self._response = respond
            self._watch(respond)
        else:
            self._start(partial(send_or_reject, respond, self.send))

    def go_on(self) -> None:
        """Send a filler, after a silence."""
        response = self._response
        # What is being written or gathered is no silence.
        if response is not None and not self._is_writing and not self._is_gathering:
            self._try(response, partial(self._write_part, response, response.take_filler))

    def lose(self) -> HttpExchange | None:
        """The client has gone; return the exchange of the task, which has to be told."""
        response, self._response = self._response, None
        if response is not None:
            response.lose()
        return self._exchange

    def fail(self) -> None:
        """Answer 500, and close."""
        self._owner.writer.write_or_start(RESPONSE_500, partial(self._owner.end, closes=True))

    def _watch(self, response: OpenResponse) -> None:
        if response.watch(self._on_ready):
            self._owner.limit_silence(response.max_silence)
        else:
            self._on_ready()

    def _on_ready(self) -> None:
        response = self._response
        if response is None or self._is_writing:
            return
        self._try(response, partial(self._send_next, response))

    def _try(self, response: OpenResponse, send: Callable[[], None]) -> None:
        """Send something from where it was said: nothing that fails here belongs to the actor that said it."""
        try:
            send()
        except Exception as error:  # noqa: BLE001
            self._owner.log_failure(error)
            self._abandon(response)

    def _send_next(self, response: OpenResponse) -> None:
        known = response.take_known() if self._stream is None else None
        if known is not None:
            self._response = None
            self._write(known, response)
        elif response.is_complete or trio.current_time() - self._written_at >= GATHERING_SECONDS:
            self._write_part(response, response.take_part)
        elif not self._is_gathering:
            self._is_gathering = True
            self._owner.facts.connections.gatherer.add(self._write_gathered)

    def _abandon(self, response: OpenResponse) -> None:
        """It could not be sent: close the connection."""
        self._response = None
        response.lose()
        if self._stream is None:
            self.fail()
        else:
            self._owner.end(closes=True)

    # The response in one write

    def _write(self, known: KnownResponse, response: OpenResponse | None) -> None:
        owner = self._owner
        # Joined with its head it would be there twice.
        if len(known.body) > MAX_JOINED_BYTES:
            self._start(partial(send_known, known, response))
            return
        closes = owner.is_last
        data = whole_response(known.status, known.body, known.headers, owner.own_head(), closes=closes)
        owner.writer.write_or_start(data, partial(self._end_known, response, closes=closes))

    def _end_known(self, response: OpenResponse | None, *, closes: bool) -> None:
        try:
            if response is not None:
                response.finish()
        except Exception as error:  # noqa: BLE001  see `_on_ready`
            self._owner.log_failure(error)
            closes = True
        self._owner.end(closes=closes)

    # The response in parts

    def _write_gathered(self) -> None:
        self._is_gathering = False
        response = self._response
        # Else what was gathered has been written with the answer, or waits for a write.
        if response is not None and not self._is_writing:
            self._try(response, partial(self._write_part, response, response.take_part))

    def _write_part(self, response: OpenResponse, take: Callable[[], StreamPart | None]) -> None:
        part = take()
        if part is None:
            self._start(response)
            return
        if self._stream is None:
            self._stream = Response(self._owner)
        if part.headers is not None:
            self._stream.set_head(200, part.headers)
        if part.is_last:
            self._response = None
        on_written = partial(self._end_part, response, self._stream, is_last=part.is_last)
        pieces = self._stream.framed(part.body, more=not part.is_last)
        self._is_writing = True
        if len(pieces) == 1:
            self._owner.writer.write_or_start(pieces[0], on_written)
        else:
            self._owner.run(partial(self._write_all, pieces, on_written))

    async def _write_all(self, pieces: Sequence[bytes], on_written: Callable[[], None]) -> None:
        try:
            for piece in pieces:
                await self._owner.writer.write(piece)
        finally:
            on_written()

    def _end_part(self, response: OpenResponse, stream: Response, *, is_last: bool) -> None:
        self._is_writing = False
        self._written_at = trio.current_time()
        if is_last:
            self._end_known(response, closes=stream.closes)
        elif self._response is not None:
            self._watch(response)

    def _start(self, respond: Respond) -> None:
        """Send it, or the rest of it, in a task."""
        self._response = None
        owner = self._owner
        self._inbox = Inbox(owner.facts.config.max_app_queue_size, owner.account)
        scope = {"type": "http", "method": "POST"}
        self._exchange = HttpExchange(owner.facts, scope, self._inbox, self._stream or Response(owner))
        if self._stream is not None:
            self._exchange.go_on()
        owner.run(partial(run_app, respond, "http", self._inbox, self._exchange.end, owner.facts.connections.records))

    async def send(self, message: Message) -> None:
        """See `HttpExchange.send`."""
        assert self._exchange is not None
        await self._exchange.send(message)

    async def receive(self) -> Message:
        """Receive the disconnect; the application has the body already."""
        assert self._inbox is not None
        return await self._inbox.receive()

    # The events of the request

    def whole_body(self) -> bytes | None:
        return None

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
