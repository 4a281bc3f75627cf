"""One connection of the HTTP server: it reads, keeps its deadlines, and ends without harm to the others.

The application answers in the task that reads. One task of all connections waits for the end of the server: see `Connections`.
"""

from __future__ import annotations

import logging
import os
import selectors
from contextlib import suppress
from math import inf
from typing import Final

import trio

from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime import Account

from .config import COPIES, limits_of
from .connections import LATE_SECONDS, ConnectionFacts
from .http1 import Http1
from .response import LAST_SEND, Stream, Writer, socket_of

STORED: Final = bytearray()
"""Stands for bytes that were stored."""
MAX_RECV: Final = 1 << 16
SHORT_RECV: Final = 1 << 13
# Seconds, and bytes, that a refused client may go on sending, so that it can read the refusal.
LINGER: Final = 2.0
MAX_LINGER_BYTES: Final = 16 << 20


class Connection:
    """One connection, after its TLS handshake.

    Args:
        account: of the connection; what is held for it is drawn there.

    Attributes:
        scope: what it runs in, once it is open.
    """

    __slots__ = (
        "__weakref__",
        "_account",
        "_due",
        "_facts",
        "_http",
        "_idle",
        "_in_head",
        "_limits",
        "_lingering",
        "_nursery",
        "_readable",
        "_reading",
        "_stored",
        "_stream",
        "_writer",
        "scope",
    )

    def __init__(self, facts: ConnectionFacts, stream: Stream, account: Account) -> None:
        self._facts = facts
        self._stream = stream
        self._account = account
        self._limits = limits_of(facts.config)
        # Waiting before reading spares a read in vain for each request, and a turn of Trio's loop.
        self._readable = None if facts.tls else socket_of(stream)
        self._reading = trio.CancelScope()
        self._due = inf
        """The deadline of reading that counts. That of `_reading` may be earlier, while nothing but `receive` is awaited."""
        # The states of reading, each with its deadline: in a head (`header_timeout`), in a request (none: the app
        # decides), idle (`keep_alive_timeout`).
        self._idle = True
        self._in_head = True
        self._stored = 0
        self._lingering: int | None = None

    def open(self, nursery: trio.Nursery) -> None:
        """Open it. No other connection uses `nursery`, which runs the tasks that it needs while it is read."""
        self.scope = nursery.cancel_scope
        self._nursery = nursery
        writer = self._writer = Writer(self._stream, self._account, nursery, self._limits.send_timeout, self._lose)
        self._http = Http1(self._facts, self, writer, self._account, nursery)

    async def run(self) -> None:
        """Read the connection to its end. The stream is closed then, unless something is raised."""
        # It was accepted as the last one before the end: its first request is on its way.
        is_late = self._facts.context.terminated.is_set()
        self._end_reading_at(trio.current_time() + (LATE_SECONDS if is_late else self._limits.header_timeout))
        is_over, http = False, self._http
        data: bytes | bytearray | None = None
        try:
            while not is_over:
                with self._reading:
                    while not is_over:
                        data = await self._receive_next() if data is None else data
                        # A deadline that has passed since ends the wait for these bytes, which is over, and nothing that is
                        # done with them.
                        if self._reading.cancel_called:
                            break
                        received, data = data, None
                        is_over = not await self._feed(received)
                if not is_over:
                    is_over = not self._is_to_go_on(has_received=bool(data))
        finally:
            # Before the nursery ends: what a call says after that has no place to go.
            http.lose()
            self._writer.end()
        # A write that is still stalled ends here: it fails once the stream is closed.
        await close_stream(self._stream)

    # Ends

    @property
    def is_sending(self) -> bool:
        """See `OpenConnection`."""
        if not self._idle:
            return self._http.is_beginning
        # In a head, also before its first byte, or in the moment before the reader has its turn.
        return self._lingering is None and (self._in_head or is_readable(socket_of(self._stream)))

    def end_if_idle(self) -> None:
        """See `OpenConnection`."""
        if self._idle:
            self._end_reading_at(trio.current_time() + (LATE_SECONDS if self.is_sending else 0))

    def limit_last_write(self) -> None:
        """See `OpenConnection`."""
        self._writer.limit_last_write()

    def _lose(self) -> None:
        self._http.lose()

    def end(self) -> None:
        """Close as the protocol requires. A client that is still sending may continue for a moment first.

        Closing with unread bytes makes TCP send a reset, which can destroy the answer before it is read (RFC 9112,
        9.6).
        """
        if self._lingering is not None:
            return
        # With unread bytes in the socket a close would be a reset, and a reset may overtake the answer.
        if self._http.peer_still_sending:
            self._lingering = 0
            is_writing = self._http.writer.is_writing
            self._http.writer.is_over = True
            self._end_reading_at(trio.current_time() + LINGER)
            if isinstance(self._stream, trio.SocketStream) and not is_writing:
                with suppress(OSError):
                    # A half-close tells the client that the answer is complete, while we still read what it sends.
                    self._stream.socket.shutdown(trio.socket.SHUT_WR)
        else:
            # In a task: who ends a response may be an actor. It wakes the reader.
            self._nursery.start_soon(close_stream, self._stream)

    # Reading

    def _is_to_go_on(self, *, has_received: bool) -> bool:
        """Return whether reading goes on after a deadline that has passed.

        Args:
            has_received: bytes have come since.
        """
        if self._due <= trio.current_time():
            self._due = inf
            if self._idle and not self._in_head and (has_received or is_readable(socket_of(self._stream))):
                # The next request has come in the same moment.
                self._due = trio.current_time() + LATE_SECONDS
            elif not self._http.break_silence():
                return False
        self._reading = trio.CancelScope(deadline=self._due)
        return True

    async def receive(self) -> bytes:
        """Receive bytes; b"" at the end of the connection."""
        try:
            if self._readable is None:
                return bytes(await self._stream.receive_some(self._most_bytes()))
            if self._readable.fileno() < 0:
                return b""
            await trio.lowlevel.wait_readable(self._readable)
            return os.read(self._readable.fileno(), self._most_bytes())
        # Readiness is a hint: the bytes may have gone by the time of the read.
        except BlockingIOError:
            return bytes(await self._stream.receive_some(self._most_bytes()))
        except (OSError, trio.ClosedResourceError, trio.BrokenResourceError):
            return b""

    def _most_bytes(self) -> int:
        """Return how many bytes to read: few where they are not counted yet, or the memory budget has no room for many."""
        return MAX_RECV if not self._idle and self._account.has_room(COPIES * MAX_RECV) else SHORT_RECV

    async def _feed(self, data: bytes | bytearray) -> bool:
        """Hand received bytes on; False when the connection is over."""
        if data is STORED:
            await self._http.receive(b"")
            self._count_stored()
            return True
        if not data:
            return False
        # The bytes of a refused client are thrown away unread, within a limit.
        if self._lingering is not None:
            self._lingering += len(data)
            return self._lingering <= MAX_LINGER_BYTES
        begins_head = self._idle and not self._in_head
        self._in_head |= begins_head
        # Counted while the layers have it: they may have to wait, for a write say, and all connections at the same time.
        size = COPIES * len(data) if len(data) > SHORT_RECV else 0
        if size:
            self._account.draw(size)
        try:
            await self._http.receive(bytes(data))
        finally:
            if size:
                self._account.give_back(size)
        # A head that came whole needs no deadline.
        if begins_head and self._idle and self._in_head:
            self._start_head()
        # Not kept while a request is in progress: that may take an hour, and these may be 64 KiB.
        del data
        # What has come with the request, or as the first bytes after it, was not counted yet.
        if self._http.ahead or self._stored:
            uncounted = len(self._http.ahead) - self._stored
            if uncounted > 0 and not self._has_room_ahead(uncounted):
                return False
            self._count_stored()
        return True

    async def _receive_next(self) -> bytes | bytearray:
        """Wait for what comes after the request in progress, or the WebSocket, if there is one; b"" at the end.

        `STORED` if it has come before. Read on meanwhile: that is the only way to learn that the client has gone. What
        comes before the answer is kept.
        """
        while self._keeps_ahead:
            # With nothing stored, the end of the request in progress is no reason to wake up.
            ahead = await (self._http.read_ahead() if self._http.ahead else self.receive())
            if ahead is not None and not self._keeps_ahead:
                return ahead
            if ahead is not None and not (ahead and self._store_ahead(ahead)):
                return b""
            del ahead
            if not self._http.paused:
                return STORED
            self._count_stored()
        websocket = self._http.websocket
        if websocket is not None and not websocket.over:
            await websocket.serve()
        return await self.receive()

    @property
    def _keeps_ahead(self) -> bool:
        """Whether what comes is kept: it belongs to a request whose turn has not come."""
        return self._http.paused and self._lingering is None

    def _has_room_ahead(self, size: int) -> bool:
        """Return whether `size` more pipelined bytes fit into the memory budget, which counts each refusal."""
        try:
            self._account.check(size)
        except LimitExceeded:
            self._log_closed("the memory budget has no room for what it sent before its answer")
            return False
        return True

    @property
    def may_store(self) -> bool:
        """Whether more may be received before it is asked for."""
        return len(self._http.ahead) < self._limits.max_pipelined

    def store(self, data: bytes) -> bool:
        """Keep what came before it was asked for, and was expected; False if the memory budget has no room for it."""
        if not self._has_room_ahead(len(data)):
            return False
        self._http.put_back(data)
        self._count_stored()
        return True

    def _store_ahead(self, data: bytes) -> bool:
        """Keep what came before the answer to its request; False if that is too much."""
        if not self._has_room_ahead(len(data)):
            return False
        self._http.put_back(data)
        if len(self._http.ahead) > self._limits.max_pipelined:
            self._log_closed("max_pipelined is %d bytes", self._limits.max_pipelined)
            return False
        self._count_stored()
        return True

    def _log_closed(self, reason: str, *args: object) -> None:
        """Log that the connection is closed because its client went on without waiting for an answer."""
        self._facts.connections.records.log(f"a connection was closed: {reason}", *args, level=logging.INFO)

    def _count_stored(self) -> None:
        """Count what a client has sent before the response to its previous request."""
        stored = len(self._http.ahead)
        if stored != self._stored:
            self._account.draw(stored - self._stored)
            self._stored = stored

    def begin_request(self) -> None:
        """Note that a request begins."""
        self._idle = self._in_head = False
        self._due = inf

    def end_request(self, *, in_message: bool) -> None:
        """Note that a response has been written, and whether something of the next request has come."""
        self._idle, self._in_head = True, False
        if in_message:
            self._start_head()
        else:
            self.limit_reading(self._facts.config.keep_alive_timeout)

    def settle_deadline(self) -> None:
        """Let no deadline end what is done next but the one that counts."""
        if self._reading.deadline != self._due:
            self._reading.deadline = self._due

    def _start_head(self) -> None:
        self._in_head = True
        self._end_reading_at(trio.current_time() + self._limits.header_timeout)

    def limit_reading(self, seconds: float) -> None:
        """End the connection in `seconds`, unless `break_silence` finds something to do or a request begins."""
        # Moving a deadline costs microseconds, so one that is too early is left alone: `_is_to_go_on` sees to it.
        self._due = trio.current_time() + seconds
        if self._due < self._reading.deadline:
            self._reading.deadline = self._due

    def _end_reading_at(self, due: float) -> None:
        self._due = self._reading.deadline = due


def is_readable(sock: trio.socket.SocketType) -> bool:
    """Return whether something has come over a socket, or its end has."""
    if sock.fileno() < 0:
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(sock.fileno(), selectors.EVENT_READ)
        return bool(selector.select(0))


async def close_stream(stream: Stream) -> None:
    """Close a stream, within a second."""
    # TLS closes with a message (close_notify). A client that does not read could block it indefinitely.
    with trio.move_on_after(LAST_SEND, shield=True):
        await stream.aclose()
