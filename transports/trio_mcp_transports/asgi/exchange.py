"""One POST and its answer: plain JSON if the answer is all there is to say, else a stream of server-sent events.

The task that hypercorn gives a request does both things that must happen while a call runs: it waits in `receive`, because
that is the only way to learn that the client has gone, and it sends what the call says. It waits inside a scope that the
outbox cancels when it has something; so one task is enough, and everything that was said meanwhile goes out in one write.

A message is processed in one step, without waiting, and nothing of it is kept by the task that then sends the response.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial

import trio

from trio_mcp.protocol.http.sse import KEEP_ALIVE, encode_event
from trio_mcp.protocol.jsonrpc import (
    INVALID_REQUEST,
    SERVER_BUSY,
    Answers,
    ErrorResponse,
    dump,
)
from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope

from ..background import open_background
from .authentication import Expiry
from .direct import KnownResponse, OpenResponse, StreamPart
from .messages import AuthorizedRequest, Headers, events_of, respond

LEGACY_STATUS = {SERVER_BUSY: 503}
"""The legacy era sends its errors with status 200, apart from overload."""

BATCH_STATUS = {INVALID_REQUEST: 400}
"""For an array that is not a batch, or a batch of which nothing can be accepted (L-HTTP-7s)."""

KEEP_ALIVE_SECONDS = 15.0
"""Seconds of silence after which a stream gets a comment: proxies cut silent ones after 30 (reliability row 54)."""

SSE_HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
)


class Exchange(OpenResponse):
    """The sending half of one HTTP exchange: as it is, a whole response, or a stream that ends by itself."""

    __slots__ = (
        "_headers",
        "_incoming",
        "_opened",
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
        self._incoming = incoming
        self._statuses = statuses
        self._headers: Headers = ()
        self._opened = False
        self._wake: Callable[[], None] | None = None
        self._silent_since: float | None = None

    def add_header(self, name: bytes, value: bytes) -> None:
        """For the head of the answer, which has not been sent yet."""
        self._headers = [*self._headers, (name, value)]

    async def run(self) -> bool:
        """Send what comes into the outbox until it is closed or `end_response` is called; False if the client left first."""
        try:
            # Each turn sends or waits, so this never spins.
            while not self.is_complete:
                if self.outbox.items:
                    await self._send_events()
                elif not await self._wait():
                    return False
            await self._end()
        # An ASGI server may raise it in `send` once the client has gone, and may then never report a disconnect.
        except OSError:
            return False
        return True

    async def __call__(self) -> None:
        try:
            if not await self.run():
                self.abandon()
        finally:
            self.finish()

    def abandon(self) -> None:
        """End the call, since its client left before the end of the response."""

    def finish(self) -> None:
        self.outbox.release()

    def lose(self) -> None:
        self.stop_watching()
        self.abandon()
        self.finish()

    def watch(self, on_ready: Callable[[], None]) -> bool:
        if self.outbox.items or self.is_complete:
            return False
        self.outbox.written()
        self._silent_since = trio.current_time()
        self._wake = self.outbox.on_ready = on_ready
        return True

    def stop_watching(self) -> None:
        """Undo `watch`."""
        wake, self._wake = self._wake, None
        # Another exchange may wait for this outbox by now, if a client has resumed its stream.
        if self.outbox.on_ready is wake:
            self.outbox.on_ready = None

    @property
    def is_complete(self) -> bool:
        return self.outbox.closed or self.is_ending

    def take_known(self) -> KnownResponse | None:
        """Return the whole response, if it is all that there is to send and nothing was sent before; else None."""
        # Decided at the end and not at the beginning: most calls say nothing but their answer, and a plain body is
        # cheaper for both.
        if self._opened or self.is_ending or not self.outbox.closed or len(self.outbox.items) > 1:
            return None
        envelopes = self.outbox.take_nowait()
        # The client cancelled the call by a message, so nothing answers it.
        if not envelopes:
            return KnownResponse(self._incoming.send, 202, b"", self._headers)
        message = envelopes[0].message
        status = self._statuses.get(message.error.code, 200) if isinstance(message, ErrorResponse) else 200
        return KnownResponse(self._incoming.send, status, dump(message), self._headers)

    def take_part(self) -> StreamPart | None:
        body = self._events_nowait()
        if body is None:
            return None
        headers = None if self._opened else self._stream_head
        self._opened = True
        is_last = self.is_complete
        return StreamPart(headers, body + self.closing_bytes if is_last else body, is_last)

    def take_filler(self) -> StreamPart | None:
        body = b"" if self._opened else self._events_nowait()
        if body is None:
            return None
        headers = None if self._opened else self._stream_head
        self._opened = True
        return StreamPart(headers, body + KEEP_ALIVE, False)

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
        wake = self._wake
        if wake is not None:
            # An outbox has one reader: unregister before the next one registers.
            self.stop_watching()
            wake()

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
            await respond(self._incoming.send, status, dump(answer), self._headers)

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
            events = events_of(self._incoming.receive)
            wake = partial(expire, ready) if events is None else events.stop_waiting
            self._wake = self.outbox.on_ready = wake
            try:
                if events is None:
                    # Further parts of the body, if there are any, mean nothing here. A cancel of this wait loses no event.
                    while (await self._incoming.receive())["type"] != "http.disconnect":
                        pass
                    return False
                if await events.wait_disconnect():
                    return False
            finally:
                self._wake = None
                # Another exchange may wait for this outbox by now, if a client has resumed its stream.
                if self.outbox.on_ready is wake:
                    self.outbox.on_ready = None
        if not (self.outbox.items or self.is_complete):
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
        return self._events_nowait() or b""

    def _events_nowait(self) -> bytes | None:
        """What there is to send; None, and nothing is taken, if it has to be waited for."""
        return b"".join(encode_event(dump(envelope.message)) for envelope in self.outbox.take_nowait())

    async def _open(self) -> None:
        if not self._opened:
            self._opened = True
            await self._incoming.send({"type": "http.response.start", "status": 200, "headers": self._stream_head})

    @property
    def _stream_head(self) -> Headers:
        return [*SSE_HEADERS, *self._headers]

    async def _send_part(self, body: bytes, *, more: bool = True) -> None:
        await self._incoming.send({"type": "http.response.body", "body": body, "more_body": more})


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
