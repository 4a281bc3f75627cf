"""The streams of a legacy session, which outlive the connections that carry them (L-HTTP-7s to L-HTTP-15s).

A stream has at most one consumer: the exchange that its client reads, or, without a reader, a task that writes its log for a
while. Only the consumer takes from the outbox and appends to the log, and it appends before it sends. So a new consumer first
sends what the log has and then continues with the outbox: no event is missing between the two, and none comes twice.

| state      | consumer           | event                                    | next state                                        |
|------------|--------------------|------------------------------------------|---------------------------------------------------|
| new        | `StreamReader`     | it sends its first event (`open`)        | read: it has a number, and is logged from now on  |
| new        | `StreamReader`     | `PRIMING_SECONDS` have passed (`open`)   | read, if the revision has priming events          |
| new        | `StreamReader`     | the answer comes first                   | done, as plain JSON and without a log             |
| read       | `StreamReader`     | the client disconnects                   | unread; a standalone stream: waiting              |
| read       | `StreamReader`     | a GET resumes it                         | read, by the new one; the old one is replaced     |
| read       | `StreamReader`     | `end_response`: it shall be polled       | unread, for longer by `extra_grace`               |
| unread     | `BackgroundLogger` | a GET resumes it                         | read                                              |
| unread     | `BackgroundLogger` | the grace is over                        | done; the call is cancelled, the log forgotten    |
| waiting    | none               | a GET resumes it, or opens a new one     | read; the new one gets what was not sent          |
| any        | any                | the outbox is closed and all is logged   | done; a GET is served from the log (`ended`)      |

A consumer is replaced without waiting for it, since it may be stuck in a write to a dead connection. It finds out because its
next `flush` returns no bytes. Example, with the ids that the client sees (stream 3):

    POST tools/call      reader A   sends 3-0 (priming), 3-1, 3-2; its client is on a train and gets 3-1 only
    A's connection hangs            the call sends 3-3: A appends it to the log and is stuck in `send`
    GET, after 3-1       reader B   becomes the consumer: A is replaced; B waits until A's append has ended (`wait_logged`)
    B sends 3-2, 3-3 from the log, then 3-4 (the answer) from the outbox; the stream is done
    A's `send` fails     reader A   returns; it is no longer the consumer, so it leaves the stream alone
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from trio_mcp.base.values import make_tuple
from trio_mcp.errors import without_traceback
from trio_mcp.protocol.http.sse import encode_event, encode_priming_event, encode_retry
from trio_mcp.protocol.jsonrpc import dump
from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope, OpenBatch, ReplyTarget
from trio_mcp.session.kept_requests import KeptRequest
from trio_mcp.session.recovery.session_record import ContinuedStream

from ...asgi.access import HttpRejection
from ...asgi.exchange import KEEP_ALIVE_SECONDS, LEGACY_STATUS, Exchange
from ...asgi.responses import StreamPart
from .event_log import EventId, EventLog, never_sent
from .stream_keeper import StreamKeeper

PRIMING_SECONDS: Final = 0.5
"""Seconds that a call may take before its stream is opened with a priming event. Most calls are faster: a plain JSON response is
cheaper for both sides, and needs no event id."""

MAX_UNLOGGED: Final = 256 * 1024
"""Bytes of events without a reader that wait for a store which fails; more are dropped."""

MAX_UNREAD_EVENTS: Final = 256
"""Events that are logged without a reader, or wait for a store that fails; then the calls that send them wait."""


@dataclass(slots=True, eq=False)
class SessionStreams:
    """The streams of one session that have not ended, and the log of all."""

    log: EventLog
    keeper: StreamKeeper | None = field(default=None, init=False)
    """Keeps the requests of the streams for the next process; None if they end with this one."""
    active: dict[int, SessionStream] = field(default_factory=dict, init=False)
    standalone: SessionStream | None = field(default=None, init=False)
    """The stream for what belongs to no request; it is there from the first GET on."""
    epoch: int = field(default=0, init=False)
    """Counts the processes that have had the session."""
    continued: Sequence[ContinuedStream] = field(default=(), init=False)
    """The streams that later processes went on with."""

    @property
    def idle(self) -> bool:
        """Whether the standalone stream has no reader."""
        return self.standalone is None or self.standalone.consumer is None

    def leave(self) -> None:
        """Write nothing more to the store, and remove nothing: another process has the session."""
        self.log.is_left = True
        self.keeper = None
        for stream in self.active.values():
            for request in stream.kept or ():
                if request.log is not None:
                    request.log.close()

    def ended(self, number: int, outbox: Outbox[Envelope]) -> SessionStream:
        """Return a stream that has ended, for a client that reads the rest of it from the log."""
        stream = SessionStream(self, outbox, sends_priming_event=False)
        stream.number, stream.last, stream.is_open = number, sys.maxsize, True
        outbox.close()
        return stream

    def known(self, event: EventId) -> int:
        """Return the number of the event after which a client resumes a stream that has seen this one.

        An earlier process may have sent events that its store did not keep, under numbers that others have by now.

        Raises:
            HttpRejection: 400, no process has sent it yet.
        """
        if event.epoch > self.epoch:
            raise never_sent(event)
        later = (each.last for each in self.continued if each.stream == event.stream and each.epoch > event.epoch)
        return min((event.number, *later))

    async def read(self, number: int, after: int) -> Sequence[bytes]:
        """What came after an event, or the first part of it. Raises `HttpRejection` as `EventLog.read` does."""
        stream = self.active.get(number)
        if not 0 < number <= self.log.opened or (stream is not None and after > stream.last):
            raise never_sent(EventId(number, after, self.epoch))
        if stream is not None and after == stream.last:
            return ()
        rejection: HttpRejection | None = None
        events: Sequence[bytes] = ()
        try:
            events = await self.log.read(number, after)
        except HttpRejection as error:
            rejection = without_traceback(error)
        if not events and stream is None:
            await self.log.check_answered(number)
        if rejection is not None:
            raise rejection
        # The store failed to keep them: an empty answer would look as if nothing had been missed.
        if not events and stream is not None and after < stream.last:
            raise HttpRejection(400, f"Some events after {EventId(number, after, self.epoch)} were not kept.")
        return events


@dataclass(slots=True, eq=False)
class SessionStream:
    """The messages about one request, or about none, as numbered events.

    Attributes:
        number: 0 until it has one.
        is_open: it has been opened; before that there is no id to resume after, and nothing is logged.
        last: the number of the newest event; of a stream that has ended, more than that.
        extra_grace: seconds that its client was asked to wait before it resumes the stream.
    """

    streams: SessionStreams
    outbox: Outbox[Envelope]
    sends_priming_event: bool
    number: int = field(default=0, init=False)
    is_open: bool = field(default=False, init=False)
    last: int = field(default=0, init=False)
    extra_grace: float = field(default=0.0, init=False)
    consumer: StreamReader | BackgroundLogger | None = field(default=None, init=False)
    listener: ReplyTarget | OpenBatch | None = field(default=None, init=False)
    kept: list[KeptRequest] | None = field(default=None, init=False)
    """Its requests in the store; None before it was first written to one."""
    _unlogged: list[Envelope] = field(default_factory=list, init=False)
    _writing: bool = field(default=False, init=False)
    # Made when a task has to wait for the append of another: a `trio.Lock` for each stream would take a kilobyte.
    _written: trio.Event | None = field(default=None, init=False)

    @property
    def done(self) -> bool:
        """Whether the outbox is closed and everything in it was sent or logged."""
        return self.outbox.closed and not self.outbox.items and not self._unlogged

    @property
    def taken(self) -> int:
        """How many events were taken from the outbox: those that are logged or sent, and those that wait for the store."""
        return self.last + len(self._unlogged)

    def serve_request(self, listener: ReplyTarget | OpenBatch, *, may_pause: bool) -> None:
        """Make it the stream of this request, or of a batch of them."""
        self.listener = listener
        # Only where the client can come back: it needs an event id before the answer, which is what the priming event
        # is for, and a server that keeps the call going meanwhile.
        if may_pause and self.sends_priming_event and isinstance(listener, ReplyTarget) and not listener.finished:
            listener.end_response = self.end_response

    def assign_number(self) -> None:
        """Give it its number, if it has none."""
        if not self.number:
            self.streams.log.opened += 1
            self.number = self.streams.log.opened

    def continue_after(self, number: int, last: int) -> None:
        """Go on with a stream of an earlier process, after its newest event."""
        self.number, self.last, self.is_open = number, last, True
        self.streams.active[number] = self

    def open(self) -> bytes:
        """Begin to log it, and return its first bytes."""
        self.assign_number()
        self.is_open = True
        self.streams.active[self.number] = self
        return encode_priming_event(self._id_of(0)) if self.sends_priming_event else b""

    def set_consumer(self, consumer: StreamReader | BackgroundLogger) -> None:
        """Make this the consumer, and call `on_replaced` of the one before."""
        before, self.consumer = self.consumer, consumer
        if before is not None:
            before.on_replaced()

    def retire(self) -> list[Envelope]:
        """Remove it from the session and return what was not logged."""
        if self.number:
            self.streams.active.pop(self.number, None)
        left: list[Envelope] = []
        if not self.done:
            left, self._unlogged = [*self._unlogged, *self.outbox.take_nowait()], []
        self.outbox.release()
        return left

    async def flush(self, consumer: StreamReader | BackgroundLogger) -> bytes:
        """Log what is in the outbox and return it as events; return nothing if the caller is no longer the consumer.

        A cancel leaves the messages to the next flush.
        """
        # The stream was never opened. No client knows an event id of it, so the messages in its outbox cannot be delivered.
        if not self.is_open:
            self.outbox.take_nowait()
            return b""
        await self.wait_logged()
        # Replaced while it waited: what is in the outbox belongs to the new consumer.
        if self.consumer is not consumer:
            return b""
        self._writing = True
        try:
            # Taken, but kept until the store has them: a cancel in the middle leaves them to the next flush.
            self._unlogged += self.outbox.take_nowait()
            events = [dump(envelope.message) for envelope in self._unlogged]
            keeper = self.streams.keeper
            is_last = self.outbox.closed and not self.outbox.items
            if keeper is None:
                is_logged = await self.streams.log.append(self.number, self.last + 1, events, is_last=is_last)
            else:
                is_logged = await self._keep(keeper, events, is_last=is_last)
            may_wait = isinstance(consumer, BackgroundLogger) and sum(map(len, events)) <= MAX_UNLOGGED
            if not (is_logged or is_last) and may_wait:
                # Without a reader they are for the log alone. The next flush tries again.
                return b""
            framed = self._counted(events)
            if keeper is not None and self.kept and self.done:
                await keeper.release(self.kept)
        finally:
            self._writing = False
            written, self._written = self._written, None
            if written is not None:
                written.set()
        return framed if self.consumer is consumer else b""

    async def _keep(self, keeper: StreamKeeper, events: Sequence[bytes], *, is_last: bool) -> bool:
        """Log events together with what the calls of the stream have recorded."""
        self.kept = [] if self.kept is None else self.kept
        keeper.note_requests(self.kept, self.listener, self.number)
        return await keeper.append(self.kept, self.streams.log, self.number, self.last + 1, events, is_last=is_last)

    def flush_nowait(self, consumer: StreamReader | BackgroundLogger) -> bytes | None:
        """Log what is in the outbox and return it as `flush` does; None, and nothing is taken, if it has to be waited for."""
        if self._writing or self.streams.keeper is not None or not self.streams.log.is_prompt:
            return None
        if self.consumer is not consumer:
            return b""
        first = b"" if self.is_open else self.open()
        self._unlogged += self.outbox.take_nowait()
        events = [dump(envelope.message) for envelope in self._unlogged]
        self.streams.log.append_nowait(self.number, self.last + 1, events)
        return first + self._counted(events)

    def _counted(self, events: Sequence[bytes]) -> bytes:
        """Return what was given to the log as events."""
        first = self.last + 1
        # Counted even if the store failed to keep them: the client that reads now gets them all the same, with
        # these numbers.
        self.last += len(events)
        self._unlogged = []
        return self.framed(first, events)

    async def wait_logged(self) -> None:
        """Wait until nothing is being logged: then the append that an earlier consumer began is in the log."""
        while self._writing:
            if self._written is None:
                self._written = trio.Event()
            await self._written.wait()

    def framed(self, first: int, events: Sequence[bytes]) -> bytes:
        numbered = enumerate(events, first)
        return b"".join(encode_event(data, self._id_of(number)) for number, data in numbered)

    def _id_of(self, number: int) -> bytes:
        return make_tuple(EventId, (self.number, number, self.streams.epoch)).encode()

    async def end_response(self, retry: float | None) -> None:
        """End the response that carries it, and return when it has ended; the client resumes the stream later.

        Args:
            retry: seconds that the client is asked to wait before that.
        """
        consumer = self.consumer
        if isinstance(consumer, StreamReader):
            self.extra_grace = retry or 0.0
            await consumer.end_early(retry)
        else:
            await trio.lowlevel.checkpoint()


class StreamReader(Exchange):
    """An exchange that sends a stream of a session."""

    __slots__ = ("_response_ended", "stream")

    def __init__(self, stream: SessionStream) -> None:
        super().__init__(LEGACY_STATUS, stream.outbox)
        self.stream = stream
        self._response_ended: trio.Event | None = None

    async def end_early(self, retry: float | None) -> None:
        """End the response, with advice when to resume the stream, and return when it has ended."""
        self._response_ended = self._response_ended or trio.Event()
        if retry is not None:
            self.closing_bytes = encode_retry(retry)
        super().end_response()
        await self._response_ended.wait()

    def on_replaced(self) -> None:
        """End the response: the stream has another consumer."""
        super().end_response()
        self.ended()

    def ended(self) -> None:
        """Note that the response has ended, or no longer carries this stream."""
        if self._response_ended is not None:
            self._response_ended.set()

    @property
    def _has_no_id(self) -> bool:
        """Whether a priming event is still to come: without it the client could not resume the stream (L-HTTP-7s)."""
        # Not before 2025-11-25: some clients of older revisions read the empty data of a priming event as a malformed message,
        # and others do not keep the id of an event that has no data at all.
        return self.stream.sends_priming_event and not self.stream.is_open

    @property
    def max_silence(self) -> float:
        return PRIMING_SECONDS if self._has_no_id else KEEP_ALIVE_SECONDS

    def take_filler(self) -> StreamPart | None:
        return self.take_part() if self._has_no_id else super().take_filler()

    def _events_nowait(self) -> bytes | None:
        return self.stream.flush_nowait(self)

    async def _events(self) -> bytes:
        stream = self.stream
        first = b"" if stream.is_open else stream.open()
        return first + await stream.flush(self)


class BackgroundLogger:
    """The consumer of a stream without a reader: it writes the log for a while, in case the client resumes the stream."""

    __slots__ = ("_scope", "_stream")

    def __init__(self, stream: SessionStream) -> None:
        self._stream = stream
        self._scope = trio.CancelScope()

    def on_replaced(self) -> None:
        """Stop: the stream has another consumer."""
        self._scope.cancel()

    async def run(self, seconds: float) -> None:
        """Log messages until the stream is done, has another consumer, or the time is over."""
        stream = self._stream
        first = stream.taken
        self._scope.deadline = trio.current_time() + seconds
        with self._scope:
            await stream.flush(self)
            # Without a checkpoint if it was replaced before it began: then nothing here may touch the outbox.
            while stream.consumer is self and not stream.done:
                # No longer taking from the outbox fills it, and then the calls that send wait: memory stays bounded
                # while no client reads. What waits for the store counts too, since each flush encodes all of it again.
                if stream.taken - first >= MAX_UNREAD_EVENTS:
                    await trio.sleep_forever()
                await stream.outbox.wait_ready()
                await stream.flush(self)
        # The call ended while there was no room for its last messages. They are logged although the time is over: the
        # answer is among them.
        if stream.consumer is self and stream.outbox.closed:
            await stream.flush(self)
