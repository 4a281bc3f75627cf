"""The streams of a legacy session, which outlive the connections that carry them (L-HTTP-7s to L-HTTP-15s).

A stream has at most one holder: the exchange that its client reads, or, while nobody reads, a task that goes on writing its log
for a while. Only the holder takes from the outbox and appends to the log, and it appends before it sends. So whoever becomes the
holder first sends what the log has and then goes on with the outbox: nothing is missing between the two and nothing comes twice.

The role changes hands at once, without waiting for the holder before, who may be stuck in a write to a dead connection. He
notices: what he takes from the stream afterwards is nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import trio

from trio_mcp.protocol.jsonrpc import dump
from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope, OpenBatch, ReplyTarget

from ..server.asgi import Receive, Send
from ..server.exchange import LEGACY_STATUS, Exchange, event, spoken
from ..server.refusals import HttpRefusal
from .event_log import EventLog, event_id, never_sent

UNREAD: Final = 256
"""Events that are logged while nobody reads; then the calls that send them wait."""


class Holder(Protocol):
    """Who may take from a stream."""

    def leave(self) -> None:
        """Somebody else holds the stream now."""
        ...


class SessionStreams:
    """The streams of one session that have not ended, and the log of all."""

    __slots__ = ("live", "log", "standalone")

    def __init__(self, log: EventLog) -> None:
        self.log = log
        self.live: dict[int, EventStream] = {}
        self.standalone: EventStream | None = None
        """The stream for what belongs to no request; it is there from the first GET on."""

    @property
    def idle(self) -> bool:
        """Nobody reads the standalone stream."""
        return self.standalone is None or self.standalone.holder is None

    def close_standalone(self) -> None:
        """End the standalone stream, if there is one."""
        if self.standalone is not None:
            self.standalone.outbox.close()

    def close(self) -> None:
        """The session is over: nothing is logged any more. The streams of calls end with their calls."""
        self.log.sealed = True
        self.close_standalone()

    async def read(self, number: int, after: int) -> Sequence[bytes]:
        """What came after an event, or the first part of it. Raises `HttpRefusal` as `EventLog.read` does."""
        stream = self.live.get(number)
        if not 0 < number <= self.log.opened or (stream is not None and after > stream.last):
            raise never_sent(number, after)
        if stream is not None and after == stream.last:
            return ()
        events = await self.log.read(number, after)
        if not events and stream is not None and after < stream.last:  # the store failed to keep them
            raise HttpRefusal(400, f"Some events after {event_id(number, after).decode()} were not kept.")
        return events


class EventStream:
    """What is said about one request, or about none, as numbered events.

    Attributes:
        number: 0 until the stream is opened; before that there is no id to come back with, and nothing is logged.
        last: the number of the newest event.
        patience: seconds that its client was told to stay away.
    """

    __slots__ = (
        "_streams",
        "_unlogged",
        "_writing",
        "_written",
        "holder",
        "last",
        "listener",
        "number",
        "outbox",
        "patience",
        "primes",
    )

    def __init__(self, streams: SessionStreams, outbox: Outbox[Envelope], *, primes: bool) -> None:
        self.outbox = outbox
        self.primes = primes
        self.number = 0
        self.last = 0
        self.patience = 0.0
        self.holder: Holder | None = None
        self.listener: ReplyTarget | OpenBatch | None = None
        self._streams = streams
        self._unlogged: list[Envelope] = []
        self._writing = False
        self._written: trio.Event | None = None
        """Made for whoever has to wait for what is being written; a lock for each stream would be a kilobyte."""

    @property
    def done(self) -> bool:
        """Everything was said and, if it has a number, logged."""
        return self.outbox.closed and not len(self.outbox) and not self._unlogged

    def answers(self, listener: ReplyTarget | OpenBatch, *, may_pause: bool) -> None:
        """It is the stream of this request, or of a batch of them."""
        self.listener = listener
        if may_pause and self.primes and isinstance(listener, ReplyTarget) and not listener.finished:
            listener.end_response = self.pause

    def open(self) -> bytes:
        """Give it its number; returns what its first bytes are."""
        log = self._streams.log
        log.opened += 1
        self.number = log.opened
        self._streams.live[self.number] = self
        return b"id: %b\ndata: \n\n" % event_id(self.number, 0) if self.primes else b""

    def give_to(self, holder: Holder) -> None:
        """Make somebody the holder; who was it before hears of it."""
        before, self.holder = self.holder, holder
        if before is not None:
            before.leave()

    def retire(self) -> list[Envelope]:
        """End its life here; what was not logged yet belongs to the caller."""
        self._streams.live.pop(self.number, None)
        self.outbox.close()
        left, self._unlogged = [*self._unlogged, *self.outbox.take_nowait()], []
        return left

    async def flush(self, holder: Holder) -> bytes:
        """Log what was said and return it as events; nothing when the caller is no longer the holder.

        A cancel leaves it to the next flush, of whoever calls it.
        """
        if not self.number:
            self.outbox.take_nowait()
            return b""
        await self.settle()
        if self.holder is not holder:
            return b""
        self._writing = True
        try:
            self._unlogged += self.outbox.take_nowait()
            events = [dump(spoken(envelope)) for envelope in self._unlogged]
            first = self.last + 1
            await self._streams.log.append(self.number, first, events)
            self.last += len(events)
            self._unlogged = []
        finally:
            self._writing = False
            written, self._written = self._written, None
            if written is not None:
                written.set()
        return self.framed(first, events) if self.holder is holder else b""

    async def settle(self) -> None:
        """Wait until nothing is being logged: what the holder before had begun is in the log then."""
        while self._writing:
            if self._written is None:
                self._written = trio.Event()
            await self._written.wait()

    def framed(self, first: int, events: Sequence[bytes]) -> bytes:
        return framed(self.number, first, events)

    async def read(self, after: int) -> Sequence[bytes]:
        return await self._streams.read(self.number, after)

    async def pause(self, retry: float | None) -> None:
        """End the response that carries it, and return when it has ended; the client comes back for the rest.

        Args:
            retry: seconds the client is to wait before that.
        """
        holder = self.holder
        if isinstance(holder, StreamReader):
            self.patience = retry or 0.0
            await holder.pause(retry)
        else:
            await trio.lowlevel.checkpoint()


def framed(stream: int, first: int, events: Sequence[bytes]) -> bytes:
    return b"".join(event(data, event_id(stream, number)) for number, data in enumerate(events, first))


class StreamReader(Exchange):
    """An exchange that carries a stream of a session, or the rest of one."""

    __slots__ = ("_gone", "_stream")

    def __init__(self, receive: Receive, send: Send, stream: EventStream) -> None:
        super().__init__(receive, send, LEGACY_STATUS, stream.outbox)
        self._stream = stream
        self._gone: trio.Event | None = None

    async def resume(self, after: int, events: Sequence[bytes]) -> bool:
        """Send what the log has after that event, of which `events` is the first part, and go on as `run` does."""
        try:
            await self._open()
            await self._flush_head()
            await self._stream.settle()
            if not await self._catch_up(after, events):
                await self._send_last()
                return False
            await self._send_events()
        except OSError:
            return False
        return await self.run()

    async def _catch_up(self, after: int, events: Sequence[bytes]) -> bool:
        """False when the log lost something just now: nothing after it may be sent. The client will ask for it and be told."""
        stream = self._stream
        while stream.holder is self and after < stream.last:
            try:
                events = events or await stream.read(after)
            except HttpRefusal:
                return False
            sent = events[
                : stream.last - after
            ]  # the store may hold more: what a write that was cut short will write again
            await self._send_part(stream.framed(after + 1, sent))
            after += len(sent)
            events = ()
        return True

    async def pause(self, retry: float | None) -> None:
        """End the response, with a word on when to come back, and return when it has ended."""
        self._gone = self._gone or trio.Event()
        if retry is not None:
            self.last_words = b"retry: %d\n\n" % round(retry * 1000)
        super().leave()
        await self._gone.wait()

    def leave(self) -> None:
        """Somebody else carries the stream on."""
        super().leave()
        self.ended()

    def ended(self) -> None:
        """The response is over, or at least no longer that of this stream."""
        if self._gone is not None:
            self._gone.set()

    async def _events(self) -> bytes:
        stream = self._stream
        first = b"" if stream.number else stream.open()
        return first + await stream.flush(self)


class Replay(Exchange):
    """An exchange that sends what is left in the log of a stream that has ended."""

    __slots__ = ()

    def __init__(self, receive: Receive, send: Send) -> None:
        super().__init__(receive, send, LEGACY_STATUS, Outbox(1))
        self.outbox.close()

    async def replay(self, streams: SessionStreams, number: int, after: int, events: Sequence[bytes]) -> None:
        """Send everything after that event, of which `events` is the first part."""
        try:
            await self._open()
            while events:
                await self._send_part(framed(number, after + 1, events))
                after += len(events)
                events = await streams.read(number, after)
        except HttpRefusal:  # evicted just now: the client will ask for the rest and be told
            pass
        except OSError:
            return
        await self.run()


class Unattended:
    """Holds a stream that nobody reads: writes its log for a while, in case its client comes back."""

    __slots__ = ("_scope", "_stream")

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._scope = trio.CancelScope()

    def leave(self) -> None:
        self._scope.cancel()

    async def run(self, seconds: float) -> None:
        """Log what is said until the stream is done, another holds it, or the time is over."""
        stream = self._stream
        first = stream.last
        self._scope.deadline = trio.current_time() + seconds
        with self._scope:
            await stream.flush(self)
            while not stream.done:
                if stream.last - first >= UNREAD:
                    await trio.sleep_forever()
                await stream.outbox.ready()
                await stream.flush(self)
        if stream.holder is self and stream.outbox.closed:  # the call ended while its last words had no room
            await stream.flush(self)
