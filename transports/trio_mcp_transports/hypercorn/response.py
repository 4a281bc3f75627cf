"""How a response is written in HTTP/1.1 (RFC 9112, 6)."""

from __future__ import annotations

import os
import re
import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from math import inf
from typing import Final, TypeAlias

import trio

from trio_mcp.runtime import Account

from ..asgi.access import Headers
from ..asgi.responses import JSON, WITHOUT_BODY, KnownResponse

# The writes of a connection: whole, in order, and each with a deadline.
#
# How a stalled write ends in time: every write is shielded, so that half a message never stays on a connection in use, and
# has a
# deadline. When the server is cut, `limit_last_write` shortens the deadlines.

Stream: TypeAlias = trio.SSLStream[trio.SocketStream] | trio.SocketStream

SEND_SLICE: Final = 1 << 16
# The parts of a response are joined into one write if none is larger.
MAX_JOINED_BYTES: Final = 1 << 16
LAST_SEND: Final = 1.0
"""Seconds that a write may still take once its connection is being cut."""


def socket_of(stream: Stream) -> trio.socket.SocketType:
    return (stream.transport_stream if isinstance(stream, trio.SSLStream) else stream).socket


class Writer:
    """The half of a connection that writes.

    Args:
        account: of the connection.
        nursery: for the rest of a write that the kernel took in part.
        seconds: that a peer may take to read the next 64 KiB.
        on_lost: called when the peer did not, or has gone; the stream is closed by then.

    Attributes:
        is_over: the end was announced to the client, by a half-close; nothing more is written.
    """

    __slots__ = (
        "_account",
        "_handed",
        "_idle",
        "_is_ended",
        "_last_send_at",
        "_lock",
        "_nursery",
        "_on_lost",
        "_plain",
        "_seconds",
        "_sending",
        "_stream",
        "_unsent",
        "is_over",
    )

    def __init__(
        self,
        stream: Stream,
        account: Account,
        nursery: trio.Nursery,
        seconds: float,
        on_lost: Callable[[], None],
    ) -> None:
        self.is_over = False
        self._stream = stream
        self._account = account
        self._nursery = nursery
        self._seconds = seconds
        self._on_lost = on_lost
        self._plain = stream.socket if isinstance(stream, trio.SocketStream) else None
        # Both are made for the first write that has to wait: most connections have none.
        self._lock: trio.Lock | None = None
        self._sending: set[trio.CancelScope] | None = None
        self._last_send_at = inf
        self._unsent = b""
        self._handed: list[tuple[Sequence[bytes], Callable[[], None]]] = []
        self._idle: trio.lowlevel.ParkingLot | None = None
        """Where the task waits that writes for TLS; None before its first write."""
        self._is_ended = False

    @property
    def is_writing(self) -> bool:
        return self._lock is not None and self._lock.locked()

    def write_now(self, data: bytes) -> bool:
        """Write all of `data` if no other write is under way and the kernel takes it at once; False: nothing was written."""
        if self.is_over:
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
            self._nursery.start_soon(self.write, b"")
        return True

    def write_or_start(self, pieces: Sequence[bytes], on_written: Callable[[], None]) -> bool:
        """Write all pieces in order. Return True if the kernel took them at once; else a task does it, and calls `on_written`."""
        if self._plain is None:
            self._hand_on(pieces, on_written)
            return False
        if len(pieces) > 1:
            self._nursery.start_soon(self._write_rest, pieces, on_written)
            return False
        (data,) = pieces
        left = b"" if self.is_over else data if self._unsent else self._offer(data)
        if left:
            self._nursery.start_soon(self._write_rest, (left,), on_written)
        return not left

    def _hand_on(self, pieces: Sequence[bytes], on_written: Callable[[], None]) -> None:
        """Let the task write that a connection has for TLS: one for each response would cost as much as its encryption."""
        self._handed.append((pieces, on_written))
        if self._idle is None:
            self._idle = trio.lowlevel.ParkingLot()
            self._nursery.start_soon(self._write_handed, self._idle)
        self._idle.unpark()

    async def _write_handed(self, idle: trio.lowlevel.ParkingLot) -> None:
        while self._handed or not self._is_ended:
            if self._handed:
                await self._write_rest(*self._handed.pop(0))
            else:
                await idle.park()

    def end(self) -> None:
        """Let the task that writes for TLS end once it has written all that is queued: the connection is over."""
        self._is_ended = True
        if self._idle is not None:
            self._idle.unpark()

    async def _write_rest(self, pieces: Sequence[bytes | memoryview], on_written: Callable[[], None]) -> None:
        try:
            for piece in pieces:
                await self.write(piece, last=True)
        finally:
            on_written()

    async def write(self, data: bytes | memoryview, *, last: bool = False) -> None:
        """Write all of `data`, in order with other writes; a peer that does not take it in time is cut off.

        Args:
            last: the task of the caller ends with it, so it need not give way to others.
        """
        if self.is_over:
            return
        # A scope with a deadline costs as much as a small write, and hardly any write has to wait.
        left = data if self._unsent else self._offer(data)
        if not left and not self._unsent:
            # An app that never waits must not keep the loop.
            if not last:
                await trio.lowlevel.cancel_shielded_checkpoint()
            return
        # Shielded, because a cancel in the middle would leave half a message on a connection that others still use. The
        # deadline is what ends a stalled write.
        scope = trio.CancelScope(shield=True, deadline=self._deadline())
        sending = self._sending = set() if self._sending is None else self._sending
        sending.add(scope)
        try:
            with scope:
                await self._write_in_turn(left, scope)
                return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            sending.discard(scope)
        await self._abort()
        self._on_lost()

    def limit_last_write(self) -> None:
        """The connection is being cut from outside: no write may take long any more."""
        self._last_send_at = trio.current_time() + LAST_SEND
        for scope in self._sending or ():
            scope.deadline = min(scope.deadline, self._last_send_at)

    def _offer(self, data: bytes | memoryview) -> bytes | memoryview:
        """Write what the kernel takes at once, if no other write is under way; return the rest."""
        if self._plain is None or self._unsent or (self._lock is not None and self._lock.locked()):
            return data
        try:
            count = os.write(self._plain.fileno(), data)
        except OSError:
            # What is wrong shows in the next write, which is the one that reports it.
            return data
        return b"" if count == len(data) else memoryview(data)[count:]

    async def _write_in_turn(self, data: bytes | memoryview, scope: trio.CancelScope) -> None:
        lock = self._lock = trio.Lock() if self._lock is None else self._lock
        try:
            # `acquire` is a checkpoint even where the lock is free, which is nearly always: that would be a turn of the
            # event loop for each answer.
            lock.acquire_nowait()
        except trio.WouldBlock:
            await lock.acquire()
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
                    scope.deadline = self._deadline()
                    await self._stream.send_all(view[start : start + SEND_SLICE])
        finally:
            if unsent:
                self._account.give_back(unsent)
            lock.release()

    def _deadline(self) -> float:
        return min(trio.current_time() + self._seconds, self._last_send_at)

    async def _abort(self) -> None:
        """Close at once and let the kernel forget what could not be sent."""
        with suppress(OSError):
            # Without SO_LINGER of 0 the kernel would keep trying to send for minutes to a peer that does not read.
            socket_of(self._stream).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await trio.aclose_forcefully(self._stream)


RESPONSE_500: Final = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
CONTINUE: Final = b"HTTP/1.1 100 \r\n\r\n"
# RFC 9110, 5.1 and 5.5: what else an application puts there could be read as another field, or as another response.
NAME: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
VALUE: Final = re.compile(rb"[\t -~\x80-\xff]*")


class UnsendableResponse(RuntimeError):
    """An application has returned what cannot be sent in HTTP."""


class StreamWriter:
    """Frames a response that is sent in parts, in chunks if its client takes them.

    Args:
        headers: of the response.
        own: the fields that every response has.
        closes: the connection is closed after it.
        takes_chunks: the client speaks HTTP/1.1. For one that does not, the body ends with the connection.

    Raises:
        UnsendableResponse: a header cannot be a field of HTTP.

    Attributes:
        closes: the connection is closed after it.
    """

    __slots__ = ("_head", "_is_chunked", "closes")

    def __init__(self, headers: Headers, own: bytes, *, closes: bool, takes_chunks: bool) -> None:
        self.closes = closes or not takes_chunks
        self._is_chunked = takes_chunks
        framing = b"Transfer-Encoding: chunked\r\n" if takes_chunks else b""
        self._head = head_bytes(200, headers, own, closes=self.closes) + framing + b"\r\n"

    def framed(self, data: bytes, *, is_last: bool) -> tuple[bytes, ...]:
        """Return a part of the body as it is written, the first one after the head: a large one in three pieces."""
        head, self._head = self._head, b""
        before, after = (b"%x\r\n" % len(data), b"\r\n") if data and self._is_chunked else (b"", b"")
        if is_last and self._is_chunked:
            after += b"0\r\n\r\n"
        # Joined with its frame it would be there twice.
        return (head + before, data, after) if len(data) > MAX_JOINED_BYTES else (head + before + data + after,)


def says_close(headers: Headers) -> bool:
    return any(name.lower() == b"connection" and b"close" in value.lower() for name, value in headers)


def whole_response(response: KnownResponse, own: bytes, *, closes: bool, is_head: bool = False) -> tuple[bytes, ...]:
    """Return a whole response as it is written, in two pieces if its body is large.

    Args:
        own: the fields that every response has.
        closes: the connection is closed after it.
        is_head: the request was a HEAD, whose response has no body.

    Raises:
        UnsendableResponse: a header cannot be a field of HTTP, or the status is none.
    """
    body = b"" if is_head or response.status in WITHOUT_BODY else response.body
    # Nearly all are of this kind.
    if response.status == 200 and not response.headers and not closes and body and response.content_type is JSON:
        head = b"HTTP/1.1 200 \r\ncontent-length: %d\r\ncontent-type: application/json\r\n%b\r\n" % (len(body), own)
    else:
        if not 200 <= response.status <= 999:
            raise UnsendableResponse(f"{response.status} is not the status of a response")
        head = head_bytes(response.status, response.head, own, closes=closes) + b"\r\n"
    # Joined with its head it would be there twice.
    return (head, body) if len(body) > MAX_JOINED_BYTES else (head + body,)


def head_bytes(status: int, headers: Headers, own: bytes, *, closes: bool = False) -> bytes:
    """Return a head without the line that ends it.

    Args:
        own: the fields that every response has.
        closes: the connection is closed after the response. A header announces that, so that the client sends no further
            request (RFC 9112, 9.6).

    Raises:
        UnsendableResponse: a header cannot be a field of HTTP.
    """
    close = b"connection: close\r\n" if closes and not says_close(headers) else b""
    return b"HTTP/1.1 %d \r\n%b%b%b" % (status, fields_bytes(headers), own, close)


def fields_bytes(headers: Headers) -> bytes:
    """Return headers as lines. Raises `UnsendableResponse` if one cannot be a field of HTTP."""
    return b"".join([(known_field if name in USUAL else field_bytes)(name, value) for name, value in headers])


def field_bytes(name: bytes, value: bytes) -> bytes:
    if not NAME.fullmatch(name) or not VALUE.fullmatch(value):
        # Without the value: it may be a secret, and the error is logged.
        raise UnsendableResponse(f"the header {name!r:.80} of a response cannot be sent in HTTP")
    return b"%b: %b\r\n" % (name, value)


# Nearly all responses have the same few, and to match both parts takes three times as long as to join them.
known_field = lru_cache(maxsize=128)(field_bytes)

USUAL: Final = frozenset(
    (b"content-type", b"cache-control", b"x-accel-buffering", b"vary", b"access-control-expose-headers")
)
"""Names of fields that are kept. Any other may be a secret, such as a cookie, or the code in a `Location`."""
