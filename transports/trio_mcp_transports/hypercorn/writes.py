"""The writes of a guarded connection: whole, in order, and each with a deadline."""

# pyright: basic
# Hypercorn's own types are partial.
from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from math import inf
from typing import Final, cast

import trio
from hypercorn.config import Config
from hypercorn.events import Closed
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, LifespanState

from trio_mcp.runtime import Account

from .config import limits_of
from .exchange import LAST_SEND
from .h11 import GuardedH11Protocol

SEND_SLICE: Final = 1 << 16


class WritingTCPServer(TCPServer):
    """The half of a connection that writes."""

    protocol: GuardedH11Protocol  # type: ignore[assignment]

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        state: LifespanState,
        stream: trio.SSLStream[trio.SocketStream] | trio.SocketStream,
    ) -> None:
        super().__init__(app, config, context, state, cast("trio.SSLStream[trio.SocketStream]", stream))
        self._tls = stream if isinstance(stream, trio.SSLStream) else None
        self._socket = (stream.transport_stream if isinstance(stream, trio.SSLStream) else stream).socket
        # Waiting before reading spares a read in vain for each request, and a turn of Trio's loop.
        self._readable = self._socket if self._tls is None else None
        self._limits = limits_of(config)
        self._account: Account
        self._lingering: int | None = None
        self._sending: set[trio.CancelScope] = set()
        self._last_send_at = inf
        self._unsent = b""

    def write_now(self, data: bytes) -> bool:
        """Write all of `data` if no other write is under way and the kernel takes it at once; False: nothing was written."""
        if self._lingering is not None:
            return False
        left = self._offer(data)
        if len(left) == len(data):
            return False
        # The kernel took a part. The rest must go before any other byte, so it is kept and a task writes it; nothing
        # else is written at once meanwhile.
        if left:
            self._unsent = bytes(left)
            # No queue counts it any more.
            self._account.draw(len(self._unsent))
            self.protocol.task_group.spawn(self._write, b"")
        return True

    def _offer(self, data: bytes) -> bytes | memoryview:
        """Write what the kernel takes at once, if no other write is under way; return what is left."""
        if self._readable is None or self._unsent or self.send_lock.locked():
            return data
        try:
            count = os.write(self._readable.fileno(), data)
        except OSError:
            # What is wrong shows in the next write, which is the one that reports it.
            return data
        return b"" if count == len(data) else memoryview(data)[count:]

    async def _write(self, data: bytes) -> None:
        """Write all of `data`, in order with other writes; a peer that does not take it in time is cut off."""
        if self._lingering is not None:
            # The end was already announced to the client, by a half-close.
            return
        # A scope with a deadline costs as much as a small write, and hardly any write has to wait.
        left = data if self._unsent else self._offer(data)
        if not left and not self._unsent:
            # An app that never waits must not keep the loop. The end of a response is the end of its task.
            if not self.protocol.is_ending:
                await trio.lowlevel.cancel_shielded_checkpoint()
            return
        # Shielded, because a cancel in the middle would leave half a message on a connection that others still use. The
        # deadline is what ends a stalled write.
        scope = trio.CancelScope(shield=True, deadline=self._send_deadline())
        self._sending.add(scope)
        try:
            with scope:
                await self._write_in_turn(left, scope)
                return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._sending.discard(scope)
        await self._abort()
        await self.protocol.handle(Closed())

    async def _write_in_turn(self, data: bytes | memoryview, scope: trio.CancelScope) -> None:
        try:
            # `acquire` is a checkpoint even where the lock is free, which is nearly always: that would be a turn of the
            # event loop for each answer.
            self.send_lock.acquire_nowait()
        except trio.WouldBlock:
            await self.send_lock.acquire()
        unsent = len(self._unsent)
        try:
            parts: tuple[bytes | memoryview, ...] = (data,)
            if unsent:
                # Joined only if small: else both would be there twice.
                joins = unsent + len(data) <= SEND_SLICE
                parts, self._unsent = (self._unsent + data,) if joins else (self._unsent, data), b""
            for part in parts:
                view = memoryview(part)
                # In slices, so that the time limit is for progress and not for the whole: a large answer over a slow link
                # is no stalled one.
                for start in range(0, len(part), SEND_SLICE):
                    scope.deadline = self._send_deadline()
                    await self.stream.send_all(view[start : start + SEND_SLICE])
        finally:
            if unsent:
                self._account.give_back(unsent)
            self.send_lock.release()

    def _send_deadline(self) -> float:
        return min(trio.current_time() + self._limits.send_timeout, self._last_send_at)

    def _limit_last_write(self) -> None:
        """The connection is being cut from outside: no write may take long any more."""
        self._last_send_at = trio.current_time() + LAST_SEND
        for scope in self._sending:
            scope.deadline = min(scope.deadline, self._last_send_at)

    async def _abort(self) -> None:
        """Close at once and let the kernel forget what could not be sent."""
        with suppress(OSError):
            # Without SO_LINGER of 0 the kernel would keep trying to send for minutes to a peer that does not read.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(self.stream)
