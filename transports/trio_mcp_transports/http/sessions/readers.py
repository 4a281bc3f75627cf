"""Who reads the streams of legacy sessions: their clients, and a task for a while when a client has gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from trio_mcp.runtime import Account

from ...asgi.access import HttpRejection
from ...asgi.responses import KnownResponse, StreamPart
from .event_log import first_of
from .sessions import LegacySession
from .streams import BackgroundLogger, SessionStream, StreamReader


class Readers:
    """The readers of the streams of one application.

    Args:
        grace: seconds that a call continues without its client.
        nursery: owns what goes on without a connection; it is the caller's.
    """

    def __init__(self, grace: float, nursery: trio.Nursery) -> None:
        self.grace = grace
        self._nursery = nursery

    def begin(self, entry: LegacySession, reader: StreamReader) -> None:
        """Make this the reader of its stream, in the place of the one before."""
        stream = reader.stream
        # From here on the one before is replaced. It is not waited for: it may be stuck in a write to a dead
        # connection.
        stream.set_consumer(reader)
        stream.extra_grace = 0.0
        if stream is entry.streams.standalone:
            entry.session.attach(stream.outbox)

    def end(self, entry: LegacySession, reader: StreamReader) -> None:
        """Settle a stream after its reader has sent all of it, has gone, or has been replaced."""
        stream = reader.stream
        reader.ended()
        entry.seen = trio.current_time()
        # Another reader may have taken over meanwhile; the stream, and what becomes of it, is its business then.
        if stream.consumer is reader:
            if stream is entry.streams.standalone:
                entry.session.attach(None)
            self.leave(entry, stream)

    def leave(self, entry: LegacySession, stream: SessionStream) -> None:
        """A stream lost its reader. A standalone one waits, a call continues for the grace period (L-HTTP-9b)."""
        stream.consumer = None
        if stream.done:
            stream.retire()
        # While the application ends, no task may be started that outlives it.
        elif stream is not entry.streams.standalone and not self._nursery.cancel_scope.cancel_called:
            background = BackgroundLogger(stream)
            stream.set_consumer(background)
            self._nursery.start_soon(self._run_unread, entry, stream, background)

    async def _run_unread(self, entry: LegacySession, stream: SessionStream, background: BackgroundLogger) -> None:
        """Let a call go on without its client for a while, then cancel it."""
        # If a client has resumed the stream during the grace, this task leaves it alone.
        abandoned = False
        try:
            await background.run(self.grace + stream.extra_grace)
        finally:
            if stream.consumer is background:
                # Asked before `retire`, which closes the outbox.
                abandoned = not stream.outbox.closed
                stream.retire()
        if abandoned and stream.listener is not None:
            entry.session.disconnect(stream.listener)
            # Its call was cancelled without an answer, so there is no end that a client could come back for.
            await entry.streams.log.forget(stream.number)
            if stream.kept and entry.streams.keeper is not None:
                await entry.streams.keeper.release(stream.kept)


class PostedStream(StreamReader):
    """The response to a POST, which becomes a stream if more is to be sent than its answer."""

    __slots__ = ("_began", "_entry", "_readers")

    def __init__(self, readers: Readers, entry: LegacySession, stream: SessionStream) -> None:
        super().__init__(stream)
        self._readers = readers
        self._entry = entry
        self._began = False

    @property
    def is_cut(self) -> bool:
        # An opened stream can be resumed in the process that has the session.
        return not self._opened and self._entry.streams.log.is_left

    def watch(self, on_ready: Callable[[], None]) -> float | None:
        self._begin()
        return super().watch(on_ready)

    def finish(self) -> None:
        self._readers.end(self._entry, self)

    def lose(self) -> None:
        # Also if it was never watched: the stream must be settled in any case.
        self._begin()
        super().lose()

    def _begin(self) -> None:
        # Once: it would replace the reader that has replaced it.
        if not self._began:
            self._began = True
            self._readers.begin(self._entry, self)


class OpenedStream(PostedStream):
    """A stream that a GET opens at once: its client waits for the head of the response."""

    __slots__ = ()

    @property
    def is_ready(self) -> bool:
        return not self._opened or super().is_ready

    def take_known(self) -> KnownResponse | None:
        return None


class ResumedStream(OpenedStream):
    """The rest of a stream: what its client has missed, from the log, and what follows.

    Args:
        after: the number of the event after which it begins.
        missed: the first part of what the log has after it.
        account: counts what is sent of the log; it is closed at the end.
    """

    __slots__ = ("_account", "_after", "_held", "_is_catching_up", "_missed")

    def __init__(
        self,
        readers: Readers,
        entry: LegacySession,
        stream: SessionStream,
        after: int,
        missed: Sequence[bytes],
        account: Account,
    ) -> None:
        super().__init__(readers, entry, stream)
        self._after = after
        self._missed = missed
        self._account = account
        self._held = 0
        self._is_catching_up = True

    @property
    def is_ready(self) -> bool:
        return self._is_catching_up or super().is_ready

    def take_part(self) -> StreamPart | None:
        if not self._opened:
            return self._part(b"")
        return None if self._is_catching_up else super().take_part()

    async def wait_part(self) -> StreamPart:
        if not self._is_catching_up:
            return await super().wait_part()
        # The append that the reader before began must be in the log first, or its events would be missing between
        # the log and the outbox.
        await self.stream.wait_logged()
        missed = await self._next_missed()
        if missed is None:
            self.is_ending, self._is_catching_up = True, False
            return self._part(b"", is_last=True)
        if missed:
            return self._part(missed)
        self._is_catching_up = False
        return await super().wait_part()

    async def _next_missed(self) -> bytes | None:
        """Return the next part of the log, nothing at its end, or None if an event was lost or the budget has no room.

        The client will ask for a lost event, and get an error.
        """
        stream = self.stream
        # The part before has been written. It was a copy.
        self._account.give_back(self._held)
        self._held = 0
        if stream.consumer is not self or self._after >= stream.last:
            return b""
        try:
            events = self._missed or await stream.streams.read(stream.number, self._after)
        except HttpRejection:
            return None
        # Only a stream that has ended has no more events than its log. The store may hold more than was counted: what a write
        # that was cut short will write again.
        first = first_of(events[: stream.last - self._after])
        body = stream.framed(self._after + 1, first)
        if not self._account.has_room(len(body)):
            return None
        self._held = len(body)
        self._account.draw(self._held)
        self._after += len(first)
        self._missed = events[len(first) :]
        return body

    def finish(self) -> None:
        self._account.close()
        super().finish()
