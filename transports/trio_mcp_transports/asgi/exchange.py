"""What one request is answered: plain JSON if the answer is all there is to say, else a stream of server-sent events.

It is taken from an outbox, which the call fills, and which calls back when there is something to send. Nothing here waits for
that, and nothing is sent here: see `OpenResponse`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

import trio

from trio_mcp.base.values import make_tuple
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
from trio_mcp.protocol.revisions import PROTOCOL_VERSION, Era
from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope, Received, ReplyTarget, ServerSession
from trio_mcp.session.session_state import LISTEN_METHOD

from .access import HttpRejection
from .requests import Expiry
from .responses import BrokenOff, KnownResponse, OpenResponse, Response, StreamPart

LEGACY_STATUS = {SERVER_BUSY: 503}
"""The legacy era sends its errors with status 200, apart from overload."""

BATCH_STATUS = {INVALID_REQUEST: 400}
"""For an array that is not a batch, or a batch of which nothing can be accepted (L-HTTP-7s)."""

KEEP_ALIVE_SECONDS = 15.0
"""Seconds of silence after which a stream gets a comment: proxies cut silent ones after 30 (reliability row 54)."""

SSE_HEADERS: Final = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Exchange(OpenResponse):
    """The answer of one HTTP exchange: as it is, a whole response, or a stream that ends by itself."""

    __slots__ = ("_opened", "_statuses", "_wake", "closing_bytes", "is_ending", "outbox")

    def __init__(self, statuses: Mapping[int, int], outbox: Outbox[Envelope]) -> None:
        self.headers, self.expiry = (), None
        self.outbox = outbox
        self.is_ending = False
        """It is to end soon, whatever is still to come."""
        self.closing_bytes = b""
        """The last bytes of a stream."""
        self._statuses = statuses
        self._opened = False
        self._wake: Callable[[], None] | None = None

    def abandon(self) -> None:
        """End the call, since its client left before the end of the response."""

    def finish(self) -> None:
        self.outbox.release()

    def lose(self) -> None:
        self.stop_watching()
        self.abandon()
        self.finish()

    def watch(self, on_ready: Callable[[], None]) -> float | None:
        if self.is_ready:
            return None
        if self._opened:
            self.outbox.written()
        self._wake = self.outbox.on_ready = on_ready
        return self.max_silence

    def stop_watching(self) -> None:
        wake, self._wake = self._wake, None
        # Another exchange may wait for this outbox by now, if a client has resumed its stream.
        if self.outbox.on_ready is wake:
            self.outbox.on_ready = None

    @property
    def is_ready(self) -> bool:
        return bool(self.outbox.items) or self.is_complete

    @property
    def is_complete(self) -> bool:
        return self.outbox.closed or self.is_ending

    @property
    def max_silence(self) -> float:
        """Seconds without anything to send after which a filler is due."""
        return KEEP_ALIVE_SECONDS

    @property
    def is_cut(self) -> bool:
        """Whether its end without an answer is to look like a lost connection."""
        return False

    @property
    def _is_broken(self) -> bool:
        return self.outbox.closed and not self.outbox.items and not self.is_ending and self.is_cut

    def take_known(self) -> KnownResponse | None:
        """Return the whole response, if it is all that there is to send and nothing was sent before; else None."""
        # Decided at the end and not at the beginning: most calls say nothing but their answer, and a plain body is
        # cheaper for both.
        if self._opened or self.is_ending or not self.outbox.closed or len(self.outbox.items) > 1 or self._is_broken:
            return None
        envelopes = self.outbox.take_nowait()
        # The client cancelled the call by a message, so nothing answers it.
        if not envelopes:
            return KnownResponse(202, b"", self.headers)
        message = envelopes[0].message
        status = self._statuses.get(message.error.code, 200) if isinstance(message, ErrorResponse) else 200
        return KnownResponse(status, dump(message), self.headers)

    def take_part(self) -> StreamPart | None:
        is_last = self.is_complete
        if is_last and self._is_broken:
            return None
        body = self._events_nowait()
        return None if body is None else self._part(body, is_last=is_last)

    async def wait_part(self) -> StreamPart:
        if self._is_broken:
            await trio.lowlevel.checkpoint()
            raise BrokenOff
        # Before it waits: how the stream ends, and what comes meanwhile, is for the next part.
        is_last = self.is_complete
        return self._part(await self._events(), is_last=is_last)

    def take_filler(self) -> StreamPart | None:
        body = b"" if self._opened else self._events_nowait()
        return None if body is None else self._part(body + KEEP_ALIVE)

    def end_response(self) -> None:
        self.is_ending = True
        wake = self._wake
        if wake is not None:
            # An outbox has one reader: unregister before the next one registers.
            self.stop_watching()
            wake()

    def _part(self, body: bytes, *, is_last: bool = False) -> StreamPart:
        headers = None if self._opened else [*SSE_HEADERS, *self.headers]
        self._opened = True
        return make_tuple(StreamPart, (headers, body + self.closing_bytes if is_last else body, is_last))

    async def _events(self) -> bytes:
        """What there is to send."""
        return self._events_nowait() or b""

    def _events_nowait(self) -> bytes | None:
        """What there is to send; None, and nothing is taken, if it has to be waited for."""
        return b"".join(encode_event(dump(envelope.message)) for envelope in self.outbox.take_nowait())


def expire(scope: trio.CancelScope) -> None:
    """Cancel a scope when the caller has gone on.

    `scope.cancel()` makes the `Cancelled` at once, in a frame that keeps the frames of its callers until the cancelled task runs.
    Here the caller is an actor that ends, with its result: the results of all calls that end in one turn would be kept.
    """
    scope.deadline = -math.inf


def rejected(outbox: Outbox[Envelope], statuses: Mapping[int, int], other: int = 200) -> KnownResponse:
    """Return the error of a message that was rejected before anything was started, or the errors of a batch; ends the outbox.

    Args:
        other: the status of an error that has none in `statuses`.
    """
    with outbox:
        envelopes = outbox.take_nowait()
    if not envelopes:
        return KnownResponse(202)
    answer = envelopes[0].message
    each = answer.answers if isinstance(answer, Answers) else (answer,)
    fitting = {statuses.get(one.error.code, other) for one in each if isinstance(one, ErrorResponse)}
    status = fitting.pop() if len(fitting) == 1 else 200
    return KnownResponse(status, dump(answer))


# A modern request, from its first check to its last byte: it belongs to nothing but its exchange.

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


def process_modern(
    session: ServerSession, inbound: Inbound, envelope: Envelope[Received], expiry: Expiry | None
) -> Response:
    """Process one message of a modern client, and return the response.

    Args:
        session: serves every modern request: they carry their context with them, and share nothing in it.
        expiry: of the credentials, for a response that does not end by itself.

    Raises:
        HttpRejection, RemoteProtocolError: the message is none that a modern client sends.
    """
    message, headers = inbound.message, envelope.peer.headers
    # MCP defines no notification that a client sends over HTTP; one is accepted and has no effect (M-HTTP-9s).
    if isinstance(message, Notification):
        session.receive_ignored(envelope, headers[VERSION_HEADER])
        return KnownResponse(202)
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
    if not isinstance(target, ReplyTarget):
        return rejected(outbox, MODERN_STATUS, other=400)
    if message.method != LISTEN_METHOD:
        return ModernResponse(outbox, session, target)
    response = ListenResponse(outbox, session, target)
    response.expiry = expiry
    return response


class ModernResponse(Exchange):
    """What a modern request says, to its answer; the end of its connection is its cancellation (M-HTTP-10s)."""

    __slots__ = ("_session", "_target")

    def __init__(self, outbox: Outbox[Envelope], session: ServerSession, target: ReplyTarget) -> None:
        super().__init__(MODERN_STATUS, outbox)
        self._session = session
        self._target = target

    @property
    def is_cut(self) -> bool:
        # Its client cannot cancel it by a message: it has gone, or the call was given up.
        return True

    def abandon(self) -> None:
        self._session.disconnect(self._target)


class ListenResponse(ModernResponse):
    """What a `subscriptions/listen` says, until its client leaves or is no longer accepted."""

    __slots__ = ()

    def finish(self) -> None:
        # It was ended early: nothing answers the request.
        if self.is_ending:
            self.abandon()
        super().finish()
