"""How a response of the direct way is written: as h11 would."""

from __future__ import annotations

from typing import Protocol

from trio_mcp.runtime import Account

from ..asgi.messages import Headers, Respond
from .exchange import RESPONSE_500, ConnectionFacts, HttpExchange
from .writes import MAX_JOINED_BYTES, Writer


class RequestOwner(Protocol):
    """The direct way of a connection, as far as one request is concerned."""

    facts: ConnectionFacts
    writer: Writer
    account: Account

    def run(self, send: Respond) -> None:
        """Run `send` in a task of the connection."""

    def limit_silence(self, seconds: float) -> None:
        """Have `OpenRequest.go_on` called after so many seconds, unless the request ends before."""

    def log_failure(self, error: Exception) -> None:
        """Log an error that ends the response."""

    def is_last(self) -> bool:
        """Return whether the connection is closed after this response."""
        ...

    def own_head(self) -> bytes:
        """Return the fields that every response has."""
        ...

    def lose(self) -> HttpExchange | None:
        """Forget the request; return the exchange that is to be told."""
        ...

    def end(self, *, closes: bool) -> None:
        """The response has been written."""


class DirectResponse:
    """Writes a response in parts.

    Attributes:
        closes: the connection is closed after it.
    """

    def __init__(self, owner: RequestOwner) -> None:
        self.closes = False
        self._owner = owner
        self._head = b""
        self._began = False
        self._is_chunked = False

    async def accept(self, headers: Headers) -> None:
        """Never called: what asks for a WebSocket goes the long way."""
        raise NotImplementedError

    def set_head(self, status: int, headers: Headers) -> None:
        """Hold the head until the first bytes of the body."""
        self.closes = self._owner.is_last() or (b"connection", b"close") in headers
        self._is_chunked = not any(name.lower() == b"content-length" for name, _ in headers)
        self._head = head_bytes(status, headers, self._owner.own_head(), closes=self.closes)
        self._head += b"Transfer-Encoding: chunked\r\n\r\n" if self._is_chunked else b"\r\n"

    def framed(self, data: bytes, *, more: bool) -> tuple[bytes, ...]:
        """Return a part of the body as it is written, after the head if that is still held: a large one in three pieces."""
        head, self._head = self._head, b""
        self._began = True
        before, after = (b"%x\r\n" % len(data), b"\r\n") if data and self._is_chunked else (b"", b"")
        if not more and self._is_chunked:
            after += b"0\r\n\r\n"
        # Joined with its frame it would be there twice.
        return (head + before, data, after) if len(data) > MAX_JOINED_BYTES else (head + before + data + after,)

    async def send_body(self, data: bytes, *, more: bool) -> None:
        """Write a part of the body, after the head if that is still held."""
        *pieces, last = self.framed(data, more=more)
        for piece in pieces:
            await self._owner.writer.write(piece)
        await self._owner.writer.write(last, last=not more)

    async def end_response(self) -> None:
        """Go on with the next request, or close the connection."""
        await self._end(closes=self.closes)

    async def fail(self) -> None:
        """Answer 500 if nothing was written, and close the connection."""
        if not self._began:
            await self._owner.writer.write(RESPONSE_500)
        await self._end(closes=True)

    async def _end(self, *, closes: bool) -> None:
        exchange = self._owner.lose()
        if exchange is not None:
            await exchange.lose()
        self._owner.end(closes=closes)


def head_bytes(status: int, headers: Headers, own: bytes, *, closes: bool) -> bytes:
    """Return a head as h11 writes it, without the line that ends it.

    Args:
        own: the fields that every response has.
    """
    close = b"connection: close\r\n" if closes and (b"connection", b"close") not in headers else b""
    return b"HTTP/1.1 %d \r\n%b%b%b" % (status, fields_bytes(headers), own, close)


def fields_bytes(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in headers])
