"""One POST and its answer: plain JSON if the answer is all there is to say, else a stream of server-sent events.

The task that hypercorn gives a request does both things that must happen while a call runs: it waits in `receive`, because
that is the only way to learn that the client has gone, and it sends what the call says. It waits inside a scope that the
outbox cancels when it has something; so one task is enough, and everything that was said meanwhile goes out in one write.

A modern request is served here from its first check to its last byte: it belongs to nothing but its exchange.

A message is processed in one step, without waiting, and nothing of it is kept by the task that then sends the response.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial

import trio

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.codec.reading import Inbound
from trio_mcp.protocol.http.headers import VERSION_HEADER, check_headers
from trio_mcp.protocol.http.sse import KEEP_ALIVE, encode_event
from trio_mcp.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    SERVER_BUSY,
    UNSUPPORTED_VERSION,
    Answers,
    ErrorResponse,
    Notification,
    Request,
    dump,
)
from trio_mcp.protocol.meta import PROTOCOL_VERSION
from trio_mcp.protocol.revisions import Era
from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope, Received, ReplyTarget, ServerSession
from trio_mcp.session.session_state import LISTEN_METHOD

from ..background import open_background
from .access import HttpRejection
from .authentication import Expiry
from .direct import KnownResponse, OpenResponse
from .fast_path import events_of
from .messages import AuthorizedRequest, Respond, respond

MODERN_STATUS = {
    METHOD_NOT_FOUND: 404,
    HEADER_MISMATCH: 400,
    MISSING_CAPABILITY: 400,
    UNSUPPORTED_VERSION: 400,
    PARSE_ERROR: 400,
    INVALID_REQUEST: 400,
    SERVER_BUSY: 503,
}
"""The HTTP status of an error that is the whole answer (protocol.md 3.1, M-ERR); any other error goes out with 200."""

LEGACY_STATUS = {SERVER_BUSY: 503}
"""The legacy era sends its errors with status 200, apart from overload."""

BATCH_STATUS = {INVALID_REQUEST: 400}
"""For an array that is no batch, or a batch of which nothing can be accepted (L-HTTP-7s)."""

KEEP_ALIVE_SECONDS = 15.0
"""Seconds of silence after which a stream gets a comment: proxies cut silent ones after 30 (reliability row 54)."""

SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Exchange:
    """The sending half of one HTTP exchange."""

    __slots__ = (
        "_headers",
        "_opened",
        "_receive",
        "_request",
        "_send",
        "_silent_since",
        "_statuses",
        "_wake",
        "closing_bytes",
        "is_ending",
        "outbox",
    )

    def __init__(self, incoming: AuthorizedRequest, statuses: dict[int, int], outbox: Outbox[Envelope]) -> None:
        self.outbox = outbox
        self.is_ending = False
        """It is to end soon, whatever is still to come."""
        self.closing_bytes = b""
        """The last bytes of a stream."""
        self._receive = incoming.receive
        self._request = events_of(incoming.receive)
        self._send = incoming.send
        self._statuses = statuses
        self._headers: list[tuple[bytes, bytes]] = []
        self._opened = False
        self._wake: Callable[[], None] | None = None
        self._silent_since: float | None = None

    def add_header(self, name: bytes, value: bytes) -> None:
        """For the head of the answer, which has not been sent yet."""
        self._headers.append((name, value))

    async def run(self) -> bool:
        """Send what comes into the outbox until it is closed or `end_response` is called; False if the client left first."""
        try:
            # Each turn sends or waits, so this never spins.
            while not (self.outbox.closed or self.is_ending):
                if self.outbox.items:
                    await self._send_events()
                elif not await self._wait():
                    return False
            await self._end()
        # An ASGI server may raise it in `send` once the client has gone, and may then never report a disconnect.
        except OSError:
            return False
        return True

    def watch(self, on_ready: Callable[[], None]) -> bool:
        """See `OpenResponse.watch`."""
        if self.outbox.items or self.outbox.closed or self.is_ending:
            return False
        self._silent_since = trio.current_time()
        self._wake = self.outbox.on_ready = on_ready
        return True

    def stop_watching(self) -> None:
        """Undo `watch`."""
        self._wake = self.outbox.on_ready = None

    def take_known(self) -> KnownResponse | None:
        """Return the whole response, if it is all that there is to send and nothing was sent before; else None."""
        # Decided at the end and not at the beginning: most calls say nothing but their answer, and a plain body is
        # cheaper for both.
        if self._opened or self.is_ending or not self.outbox.closed or len(self.outbox.items) > 1:
            return None
        envelopes = self.outbox.take_nowait()
        # The client cancelled the call by a message, so nothing answers it.
        if not envelopes:
            return KnownResponse(self._send, 202, b"", self._headers)
        message = envelopes[0].message
        status = self._statuses.get(message.error.code, 200) if isinstance(message, ErrorResponse) else 200
        return KnownResponse(self._send, status, dump(message), self._headers)

    async def listen(self, first: bytes = b"") -> bool:
        """Open the stream before there is anything to send, and go on as `run` does.

        Args:
            first: what the stream begins with.
        """
        try:
            await self._send_events()
            # An ASGI server sends a head with the first of its body, and the client of a silent stream must not wait for that.
            await self._send_part(first)
        except OSError:
            return False
        return await self.run()

    def end_response(self) -> None:
        """End the response after what it is sending now."""
        self.is_ending = True
        if self._wake is not None:
            self._wake()

    async def reject(self, statuses: Mapping[int, int], other: int = 200) -> None:
        """Send the error of a message that was rejected before anything was started, or the errors of a batch.

        Args:
            other: the status of an error that has none in `statuses`.
        """
        for envelope in self.outbox.take_nowait():
            answer = envelope.message
            each = answer.answers if isinstance(answer, Answers) else (answer,)
            fitting = {statuses.get(one.error.code, other) for one in each if isinstance(one, ErrorResponse)}
            status = fitting.pop() if len(fitting) == 1 else 200
            await respond(self._send, status, dump(answer), self._headers)

    async def _end(self) -> None:
        """The last of it. What was all said before anything was sent needs no stream."""
        whole = self.take_known()
        if whole is not None:
            await whole()
            return
        await self._send_events()
        await self._send_part(self.closing_bytes, more=False)

    async def _wait(self) -> bool:
        """Wait for something to send; False when the client has gone."""
        self.outbox.written()
        since, self._silent_since = self._silent_since or trio.current_time(), None
        with trio.CancelScope(deadline=since + self.max_silence) as ready:
            wake = partial(expire, ready) if self._request is None else self._request.stop_waiting
            self._wake = self.outbox.on_ready = wake
            try:
                if self._request is None:
                    # Further parts of the body, if there are any, mean nothing here. A cancel of this wait loses no event.
                    while (await self._receive())["type"] != "http.disconnect":
                        pass
                    return False
                if await self._request.wait_disconnect():
                    return False
            finally:
                self._wake = None
                # Another exchange may wait for this outbox by now, if a client has resumed its stream.
                if self.outbox.on_ready is wake:
                    self.outbox.on_ready = None
        if not (self.outbox.items or self.outbox.closed or self.is_ending):
            await self._keep_alive()
        return True

    @property
    def max_silence(self) -> float:
        """Seconds after which `_keep_alive` is called if there is nothing to send."""
        return KEEP_ALIVE_SECONDS

    async def _keep_alive(self) -> None:
        if not self._opened:
            await self._send_events()
        await self._send_part(KEEP_ALIVE)

    async def _send_events(self) -> None:
        """Send what there is as events; opens the stream even if there is nothing."""
        body = await self._events()
        await self._open()
        if body:
            await self._send_part(body)

    async def _events(self) -> bytes:
        """What there is to send."""
        return b"".join(encode_event(dump(envelope.message)) for envelope in self.outbox.take_nowait())

    async def _open(self) -> None:
        if not self._opened:
            self._opened = True
            await self._send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *self._headers]})

    async def _send_part(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})


def expire(scope: trio.CancelScope) -> None:
    """Cancel a scope when the caller has gone on.

    `scope.cancel()` makes the `Cancelled` at once, in a frame that keeps the frames of its callers until the cancelled task runs.
    Here the caller is an actor that ends, with its result: the results of all calls that end in one turn would be kept.
    """
    scope.deadline = -math.inf


def ended_when_expired(exchange: Exchange, expiry: Expiry | None) -> AbstractAsyncContextManager[None]:
    """End the response when its credentials are no longer accepted, while the block runs.

    For a stream that does not end by itself: its headers came once, and would otherwise count for as long as its client likes.
    """
    # A server without `authenticate` may have thousands of such streams, which then need no nursery.
    return nullcontext() if expiry is None else _watched(exchange, expiry)


@asynccontextmanager
async def _watched(exchange: Exchange, expiry: Expiry) -> AsyncGenerator[None]:
    async with open_background() as nursery:
        nursery.start_soon(_end_when_expired, exchange, expiry)
        yield


async def _end_when_expired(exchange: Exchange, expiry: Expiry) -> None:
    await expiry()
    exchange.end_response()


def process_modern(
    session: ServerSession, inbound: Inbound, envelope: Envelope[Received], incoming: AuthorizedRequest
) -> Respond:
    """Process one message of a modern client, and return what sends the response.

    Args:
        session: serves every modern request: they carry their context with them, and share nothing in it.

    Raises:
        HttpRejection, RemoteProtocolError: the message is none that a modern client sends.
    """
    message, headers = inbound.message, envelope.peer.headers
    # MCP defines no notification that a client sends over HTTP; one is accepted and has no effect (M-HTTP-9s).
    if isinstance(message, Notification):
        session.receive_ignored(envelope, headers[VERSION_HEADER])
        return KnownResponse(incoming.send, 202)
    if not isinstance(message, Request):
        raise HttpRejection(400, "A modern client sends requests only.")
    # The version header alone makes a request modern, but its body must name the version too (M-META-1s). This comes before the
    # comparison of headers and body, which would only say that they differ.
    if inbound.era is not Era.MODERN:
        version = headers.get(VERSION_HEADER, "")
        raise RemoteProtocolError(f'params._meta must say "{PROTOCOL_VERSION}": "{version}"', code=INVALID_PARAMS)
    check_headers(headers, inbound.version, message)
    outbox = session.service.open_outbox(envelope.peer)
    target = session.receive(envelope, outbox, owns_outbox=True, inbound=inbound)
    exchange = Exchange(incoming, MODERN_STATUS, outbox)
    if not isinstance(target, ReplyTarget):
        return partial(reject_modern, exchange)
    if message.method == LISTEN_METHOD:
        return partial(respond_listening, session, exchange, target, incoming.expiry)
    return ModernResponse(session, exchange, target)


class ExchangeResponse(OpenResponse):
    """The response that an exchange sends."""

    __slots__ = ("exchange",)

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    @property
    def max_silence(self) -> float:
        return self.exchange.max_silence

    def watch(self, on_ready: Callable[[], None]) -> bool:
        return self.exchange.watch(on_ready)

    def take_known(self) -> KnownResponse | None:
        return self.exchange.take_known()


class ModernResponse(ExchangeResponse):
    """What a modern request says, to its answer; the end of its connection is its cancellation (M-HTTP-10s)."""

    __slots__ = ("_session", "_target")

    def __init__(self, session: ServerSession, exchange: Exchange, target: ReplyTarget) -> None:
        super().__init__(exchange)
        self._session = session
        self._target = target

    def finish(self) -> None:
        close_outbox(self.exchange.outbox)

    def lose(self) -> None:
        self.exchange.stop_watching()
        self._session.disconnect(self._target)
        self.finish()

    async def __call__(self) -> None:
        with self.exchange.outbox:
            if not await self.exchange.run():
                self._session.disconnect(self._target)


async def reject_modern(exchange: Exchange) -> None:
    with exchange.outbox:
        await exchange.reject(MODERN_STATUS, other=400)


async def respond_listening(
    session: ServerSession, exchange: Exchange, target: ReplyTarget, expiry: Expiry | None
) -> None:
    """Send what a `subscriptions/listen` says, until its client leaves or is no longer accepted."""
    with exchange.outbox:
        async with ended_when_expired(exchange, expiry):
            is_over = await exchange.run() and not exchange.is_ending
        if not is_over:
            session.disconnect(target)


def close_outbox(outbox: Outbox[Envelope]) -> None:
    """Close an outbox and its account, as its context does at its end."""
    with outbox:
        pass
