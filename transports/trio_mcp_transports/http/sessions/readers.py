"""Who reads the streams of legacy sessions: their clients, and a task for a while when a client has gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from ...asgi.messages import AuthorizedRequest
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

    async def serve(self, entry: LegacySession, reader: StreamReader, run: Callable[[], Awaitable[bool]]) -> None:
        """Carry a stream until it ends, its reader goes, or another one comes; then see to what is left of it."""
        self.begin(entry, reader)
        try:
            await run()
        finally:
            self.end(entry, reader)

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
        """See to what is left of a stream: its reader has sent all of it, has gone, or has been replaced."""
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

    def __init__(
        self, readers: Readers, entry: LegacySession, incoming: AuthorizedRequest, stream: SessionStream
    ) -> None:
        super().__init__(incoming, stream)
        self._readers = readers
        self._entry = entry
        self._began = False

    def watch(self, on_ready: Callable[[], None]) -> bool:
        self._begin()
        return super().watch(on_ready)

    def finish(self) -> None:
        self._readers.end(self._entry, self)

    async def __call__(self) -> None:
        self._begin()
        await super().__call__()

    def _begin(self) -> None:
        # Once: it would replace the reader that has replaced it.
        if not self._began:
            self._began = True
            self._readers.begin(self._entry, self)


class StandaloneStream(PostedStream):
    """The stream for what belongs to no request, which a GET opens at once: its client waits for the head of the response."""

    __slots__ = ()

    def watch(self, on_ready: Callable[[], None]) -> bool:
        if not self._opened:
            self._begin()
            return False
        return super().watch(on_ready)

    async def run(self) -> bool:
        return await super().run() if self._opened else await self.listen()
