"""The guard that hypercorn's Trio worker needs before it may face a network.

Hypercorn 0.18 runs every connection in one nursery: an error in one connection's code ends the server. It writes
inside a shield without a deadline: a client that stops reading pins its app and the shutdown for ever. And it starts
and cancels a task per request to time idle connections, more than a fourth of what a small request costs.
`GuardedTCPServer` is its connection class with these three put right; `install` puts it in hypercorn's place.

How a stalled write ends in time: every write is shielded, so that half a message never stays on a connection in use,
and has a deadline. A small task per connection does nothing but wait, unshielded: when the server is cut, that task is
cancelled and shortens the deadlines.
"""

# pyright: basic
# Hypercorn's own types are partial.
from __future__ import annotations

import importlib.metadata
import logging
import os
from contextlib import suppress
from math import inf
from typing import Final, cast

import hypercorn.trio.run
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, LifespanState
from hypercorn.utils import parse_socket_addr

from trio_mcp.errors import LimitExceeded

from ..asgi.failures import log_failures
from .config import ALPN_PROTOCOLS, memory_of
from .connections import connections_of
from .exchange import LAST_SEND, ConnectionTasks
from .h11 import Address, GuardedH11Protocol
from .writes import WritingTCPServer

SUPPORTED: Final = "0.18."
MAX_RECV: Final = 1 << 16
SHORT_RECV: Final = 1 << 13
COPIES: Final = 3
# Seconds, and bytes, that a refused client may go on sending, so that it can read the refusal.
LINGER: Final = 2.0
MAX_LINGER_BYTES: Final = 16 << 20


class UnsupportedHypercorn(RuntimeError):
    """This version of hypercorn is not the one the guard was written for."""


def install() -> None:
    """Make hypercorn's Trio worker use `GuardedTCPServer`, in this process, for every connection accepted from now on.

    Idempotent. An ASGI app may call it while it handles `lifespan.startup`: hypercorn starts to listen after that, so
    `hypercorn -k trio module:app` is covered too. TLS connections are offered HTTP/1.1 only.

    Raises:
        UnsupportedHypercorn: hypercorn is not 0.18, or its connection class was already replaced by someone else's.
    """
    version = importlib.metadata.version("hypercorn")
    if not version.startswith(SUPPORTED):
        raise UnsupportedHypercorn(f"the guard supports hypercorn {SUPPORTED}x only, and {version} is installed")
    current = getattr(hypercorn.trio.run, "TCPServer", None)
    if current is GuardedTCPServer:
        return
    # Somebody else has patched hypercorn too, or `worker_serve` no longer looks the name up: our class would silently
    # not be used.
    if current is not TCPServer or "TCPServer" not in hypercorn.trio.run.worker_serve.__code__.co_names:
        raise UnsupportedHypercorn(f"hypercorn.trio.run.TCPServer is not hypercorn's own class but {current!r}")
    hypercorn.trio.run.TCPServer = GuardedTCPServer  # type: ignore[attr-defined]
    Config.alpn_protocols = ALPN_PROTOCOLS


class GuardedTCPServer(WritingTCPServer):
    """One connection: its errors stay inside it, its writes end, its idle time is a deadline."""

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        state: LifespanState,
        stream: trio.SSLStream[trio.SocketStream] | trio.SocketStream,
    ) -> None:
        super().__init__(app, config, context, state, stream)
        self._watching = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._idle = True
        self._in_head = True
        self._stored = 0

    async def run(self) -> None:
        """Serve the connection to its end. Only a cancel of an outer scope is raised."""
        try:
            client = parse_socket_addr(self._socket.family, self._socket.getpeername())
            server = parse_socket_addr(self._socket.family, self._socket.getsockname())
        except OSError:
            # The client left between the accept and this line; a socket without a peer has no address.
            await self._close()
            return
        connections, scope = connections_of(self.config), trio.CancelScope()
        with memory_of(self.config).open() as self._account:
            try:
                # One connection must never end the server: what it raised is logged, and only a cancel from outside goes on.
                with log_failures("a connection failed and was closed", connections.records):
                    refusal = connections.admit(scope, self._account)
                    if refusal is None:
                        with scope:
                            await self._serve(client, server)
                    else:
                        await connections.refuse(self.stream, refusal)
            finally:
                connections.remove(scope)

    async def _serve(self, client: Address, server: Address) -> None:
        if not await self._shake_hands():
            return
        try:
            async with trio.open_nursery() as nursery:
                tasks = ConnectionTasks(nursery, self._account)
                self.protocol = GuardedH11Protocol(self, tasks, client, server, self.write_now)
                nursery.start_soon(self._watch)
                await self._read_data()
                self._watching.cancel()
                # A write that is still stalled ends here: it fails once the stream is closed.
                await self._close()
        finally:
            await self._close()  # noqa: ASYNC102  it has a shield and a time limit

    async def _shake_hands(self) -> bool:
        """The TLS handshake, if there is to be one; False when it failed."""
        if self._tls is None:
            return True
        try:
            with trio.fail_after(self.config.ssl_handshake_timeout):
                await self._tls.do_handshake()
        except (trio.BrokenResourceError, trio.TooSlowError):
            return False
        return True

    # Ends

    async def _watch(self) -> None:
        """Wait for the end of the server: gracefully, then by force. Cancelled with the connection."""
        with self._watching:
            try:
                await self.context.terminated.wait()
                if self._idle:
                    # An idle connection has nothing to lose. A busy one may answer first, and `_maybe_recycle` closes
                    # it then.
                    self._reading.deadline = trio.current_time()
                await trio.sleep_forever()
            finally:
                # The connection was not at its end: the server is being cut. Writes are shielded, so nothing but their
                # deadlines can end them.
                if not self._watching.cancel_called:
                    self._limit_last_write()

    async def _end(self) -> None:
        """Close as the protocol requires. A client that is still sending may continue for a moment first.

        Closing with unread bytes makes TCP send a reset, which can destroy the answer before it is read (RFC 9112,
        9.6).
        """
        # With unread bytes in the socket a close would be a reset, and a reset may overtake the answer.
        if self.protocol.peer_still_sending and self._lingering is None:
            self._lingering = 0
            self._reading.deadline = trio.current_time() + LINGER
            if self._tls is None and not self.send_lock.locked():
                with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    # A half-close tells the client that the answer is complete, while we still read what it sends.
                    await cast("trio.SocketStream", self.stream).send_eof()
        elif self._lingering is None:
            await self._close()
        await self.protocol.handle(Closed())

    async def _close(self) -> None:
        # TLS closes with a message (close_notify), which a client that does not read could hold up for ever.
        with trio.move_on_after(LAST_SEND, shield=True):
            await self.stream.aclose()

    # Reading

    async def _read_data(self) -> None:
        self._reading.deadline = trio.current_time() + self._limits.header_timeout
        with self._reading:
            while await self._feed(await (self._receive_next() if self.protocol.paused else self._receive())):
                pass
        await self.protocol.handle(Closed())

    async def _receive(self) -> bytes:
        try:
            if self._readable is None:
                return bytes(await self.stream.receive_some(self._most_bytes()))
            if self._readable.fileno() < 0:
                return b""
            await trio.lowlevel.wait_readable(self._readable)
            return os.read(self._readable.fileno(), self._most_bytes())
        # Readiness is a hint: the bytes may have gone by the time of the read.
        except BlockingIOError:
            return bytes(await self.stream.receive_some(self._most_bytes()))
        except (OSError, trio.ClosedResourceError, trio.BrokenResourceError):
            return b""

    def _most_bytes(self) -> int:
        """Return how many bytes to read: few where they are not counted yet, or the memory budget has no room for many."""
        return MAX_RECV if not self._idle and self._account.has_room(COPIES * MAX_RECV) else SHORT_RECV

    async def _feed(self, data: bytes) -> bool:
        """Hand received bytes on; False when the connection is over."""
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
            left = self.protocol.take(data)
            # A part was taken, or nothing because the turn is over. More is taken in turn with other tasks.
            while left and (len(left) < len(data) or self.protocol.turn_is_over):
                await self.protocol.next_turn()
                data, left = left, self.protocol.take(left)
            if left:
                await self.protocol.handle(RawData(left))
        finally:
            if size:
                self._account.give_back(size)
        # A head that came whole needs no deadline.
        if begins_head and self._idle and self._in_head:
            self._start_head()
        # Not kept while a request is in progress: that may take an hour, and these may be 64 KiB.
        del data, left
        # What has come with the request, or as the first bytes after it, was not counted yet.
        if self.protocol.paused or self._stored:
            uncounted = self.protocol.buffered - self._stored
            if uncounted > 0 and not self._has_room_ahead(uncounted):
                return False
            self._count_stored()
        return True

    async def _receive_next(self) -> bytes:
        """Wait for what comes after the answer to the request in progress, if there is one; b"" at the end.

        Read on meanwhile: that is the only way to learn that the client has gone. What comes before the answer is kept.
        """
        while self.protocol.paused:
            ahead = await self.protocol.read_ahead(self._receive)
            if ahead is not None and not self.protocol.paused:
                return ahead
            if ahead is not None and not (ahead and self._store(ahead)):
                return b""
            del ahead
            if not self.protocol.paused:
                await self.protocol.resume()
            self._count_stored()
        return await self._receive()

    def _has_room_ahead(self, size: int) -> bool:
        """Return whether so many bytes more may be stored that were sent before an answer; the budget counts a refusal."""
        try:
            self._account.check(size)
        except LimitExceeded:
            self._log_closed("the memory budget has no room for what it sent before its answer")
            return False
        return True

    def _store(self, data: bytes) -> bool:
        if not self._has_room_ahead(len(data)):
            return False
        self.protocol.connection.receive_data(data)
        if self.protocol.buffered > self._limits.max_pipelined:
            self._log_closed("max_pipelined is %d bytes", self._limits.max_pipelined)
            return False
        self._count_stored()
        return True

    def _log_closed(self, reason: str, *args: object) -> None:
        """Log that the connection is closed because its client went on without waiting for an answer."""
        connections_of(self.config).records.log(f"a connection was closed: {reason}", *args, level=logging.INFO)

    def _count_stored(self) -> None:
        """Count what a client has sent before the response to its previous request."""
        stored = self.protocol.buffered
        if stored != self._stored:
            self._account.draw(stored - self._stored)
            self._stored = stored

    def _set_idle(self, idle: bool) -> None:
        # The states of reading, each with its deadline: in a head (`header_timeout`), in a request (none: the app
        # decides), idle (`keep_alive_timeout`).
        self._idle, self._in_head = idle, False
        if not idle:
            self._reading.deadline = inf
        elif self.protocol.buffered:
            self._start_head()
        else:
            self._reading.deadline = trio.current_time() + self.config.keep_alive_timeout

    def _start_head(self) -> None:
        self._in_head = True
        self._reading.deadline = trio.current_time() + self._limits.header_timeout

    # Writing

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, RawData):
            if event.data:
                await self._write(event.data)
        elif isinstance(event, Updated):
            self._set_idle(event.idle)
        elif isinstance(event, Closed):
            await self._end()
