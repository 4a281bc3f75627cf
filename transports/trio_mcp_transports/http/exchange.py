"""One POST and its answer: plain JSON if the answer is all there is to say, else a stream of server-sent events.

The task that hypercorn gives a request does both things that must happen while a call runs: it waits in `receive`, because
that is the only way to learn that the client has gone, and it sends what the call says. It waits inside a scope that the
outbox cancels when it has something; so one task is enough, and everything that was said meanwhile goes out in one write.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from trio_mcp.protocol.jsonrpc import (
    HEADER_MISMATCH,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    SERVER_BUSY,
    UNSUPPORTED_VERSION,
    Answers,
    ErrorResponse,
    Malformed,
    Message,
    Unanswered,
    dump,
)
from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope

from .asgi import Headers, Receive, Send, respond

__all__ = ["BATCH_STATUS", "LEGACY_STATUS", "MODERN_STATUS", "RETRY_LATER", "Exchange"]

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
"""The handshake era puts its errors into a 200, apart from overload."""

BATCH_STATUS = {INVALID_REQUEST: 400}
"""For an array that is no batch, or a batch of which nothing can be accepted (L-HTTP-7s)."""

RETRY_LATER = (b"retry-after", b"1")
KEEP_ALIVE = 15.0
"""Seconds of silence after which a stream gets a comment: proxies cut silent ones after 30 (reliability row 54)."""

SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Exchange:
    """The sending half of one HTTP exchange."""

    __slots__ = ("_headers", "_opened", "_receive", "_send", "_statuses", "outbox")

    def __init__(self, receive: Receive, send: Send, statuses: dict[int, int], outbox_limit: int) -> None:
        self.outbox: Outbox[Envelope] = Outbox(outbox_limit)
        self._receive = receive
        self._send = send
        self._statuses = statuses
        self._headers: list[tuple[bytes, bytes]] = []
        self._opened = False

    def add_header(self, name: bytes, value: bytes) -> None:
        """For the head of the answer, which has not been sent yet."""
        self._headers.append((name, value))

    async def run(self) -> bool:
        """Send what comes into the outbox until it is closed; False when the client went away first."""
        try:
            while not self.outbox.closed:  # each turn sends, or waits
                if envelopes := self.outbox.take_nowait():
                    await self._stream(envelopes)
                elif not await self._wait():
                    return False
            await self._end(self.outbox.take_nowait())
        except OSError:  # an ASGI server may raise it in `send` once the client has gone, and then nothing else tells
            return False
        return True

    async def _end(self, envelopes: Sequence[Envelope]) -> None:
        """The last of it. What was all said before anything was sent needs no stream."""
        if not self._opened and len(envelopes) < 2:
            await self._answer(envelopes)
            return
        await self._stream(envelopes)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def refuse(self, status: int, answer: ErrorResponse | Answers) -> None:
        """Answer with an error before anything was started."""
        await respond(self._send, status, dump(answer), self._headers)

    async def accept(self) -> None:
        """A notification or a response was taken."""
        await respond(self._send, 202)

    async def open_stream(self) -> None:
        """Open the event stream before there is anything to send."""
        await self._stream(())

    async def _wait(self) -> bool:
        """Wait for something to send; False when the client has gone."""
        with trio.CancelScope(deadline=trio.current_time() + KEEP_ALIVE) as ready:
            self.outbox.on_ready = ready.cancel
            try:
                while (await self._receive())["type"] != "http.disconnect":
                    pass
                return False
            finally:
                self.outbox.on_ready = None
        if not len(self.outbox) and not self.outbox.closed:
            await self._keep_alive()
        return True

    async def _keep_alive(self) -> None:
        await self._open()
        await self._send({"type": "http.response.body", "body": b": still here\n\n", "more_body": True})

    async def _answer(self, envelopes: Sequence[Envelope]) -> None:
        """The whole answer at once; none at all ends the exchange without one (the call was cancelled by its client)."""
        if not envelopes:
            await respond(self._send, 202)
            return
        message = spoken(envelopes[0])
        status = self._statuses.get(message.error.code, 200) if isinstance(message, ErrorResponse) else 200
        headers: Headers = [*self._headers, RETRY_LATER] if status == 503 else self._headers
        await respond(self._send, status, dump(message), headers)

    async def _stream(self, envelopes: Sequence[Envelope]) -> None:
        await self._open()
        if envelopes:
            body = b"".join(event(envelope) for envelope in envelopes)
            await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _open(self) -> None:
        if not self._opened:
            self._opened = True
            await self._send({"type": "http.response.start", "status": 200, "headers": [*SSE_HEADERS, *self._headers]})


def event(envelope: Envelope) -> bytes:
    """One message as one event. JSON has no raw line breaks, so a single data line carries it."""
    return b"event: message\ndata: %b\n\n" % dump(spoken(envelope))


def spoken(envelope: Envelope) -> Message | Answers:
    """What an outbox holds is what somebody said: only a reader meets anything else."""
    message = envelope.message
    assert not isinstance(message, Malformed | Unanswered)
    return message
