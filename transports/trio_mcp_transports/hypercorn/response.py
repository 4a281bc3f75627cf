"""How a response is written in HTTP/1.1 (RFC 9112, 6), for requests of both ways."""

from __future__ import annotations

import re
from typing import Final, Protocol

from ..asgi.messages import Headers, head_of
from .writes import MAX_JOINED_BYTES, Writer

RESPONSE_500: Final = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
CONTINUE: Final = b"HTTP/1.1 100 \r\n\r\n"
NO_BODY: Final = frozenset({204, 304})
# RFC 9110, 5.1 and 5.5: what else an application puts there could be read as another field, or as another response.
NAME: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
VALUE: Final = re.compile(rb"[\t -~\x80-\xff]*")


class UnexpectedMessage(RuntimeError):
    """An application has sent what cannot follow what it had sent, or cannot be sent in HTTP."""


class ResponseOwner(Protocol):
    """The connection, as far as one response is concerned."""

    writer: Writer

    @property
    def is_last(self) -> bool:
        """Whether the connection is closed after this response."""
        ...

    def own_head(self) -> bytes:
        """Return the fields that every response has."""
        ...

    async def end_response(self, *, closes: bool) -> None:
        """Go on with the next request, or close the connection."""


class Response:
    """Writes one response, in parts.

    Args:
        keeps_alive: the client may send another request on the connection.
        is_head: the request was a HEAD, whose response has no body.
        takes_chunks: the client speaks HTTP/1.1. For one that does not, a body of unknown length ends with the connection.

    Attributes:
        began: a part of it was written.
        closes: the connection is closed after it.
    """

    __slots__ = ("_head", "_is_chunked", "_is_head", "_left", "_owner", "_takes_chunks", "began", "closes")

    def __init__(
        self, owner: ResponseOwner, *, keeps_alive: bool = True, is_head: bool = False, takes_chunks: bool = True
    ) -> None:
        self.began = False
        self.closes = not keeps_alive
        self._owner = owner
        self._head = b""
        self._is_head = is_head
        self._takes_chunks = takes_chunks
        self._is_chunked = False
        self._left: int | None = None
        """What is left of the promised length of the body."""

    async def accept(self, headers: Headers) -> None:
        """Switch protocols (101)."""
        self.began = True
        await self._owner.writer.write(head_bytes(101, headers, self._owner.own_head()) + b"\r\n")

    def set_head(self, status: int, headers: Headers) -> None:
        """Hold the head until the first bytes of the body. Raises `UnexpectedMessage` if it cannot be sent."""
        length = length_of(status, headers)
        has_body = not self._is_head and status not in NO_BODY
        self._left = length if has_body else None
        framing = b""
        if length is None and status not in NO_BODY:
            self._is_chunked = has_body and self._takes_chunks
            framing = b"Transfer-Encoding: chunked\r\n" if self._takes_chunks else b""
            self.closes |= has_body and not self._takes_chunks
        # Said in the head of the last answer, so that a client sends no further request into a connection that is about
        # to close (RFC 9112, 9.6).
        self.closes |= self._owner.is_last or says_close(headers)
        self._head = head_bytes(status, headers, self._owner.own_head(), closes=self.closes) + framing + b"\r\n"

    def framed(self, data: bytes, *, more: bool) -> tuple[bytes, ...]:
        """Return a part of the body as it is written, after the head if that is still held: a large one in three pieces.

        Raises:
            UnexpectedMessage: the body is longer or shorter than its head says.
        """
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0 or (self._left and not more):
                raise UnexpectedMessage("the body of a response has not the length that its content-length says")
        head, self._head = self._head, b""
        self.began = True
        before, after = (b"%x\r\n" % len(data), b"\r\n") if data and self._is_chunked else (b"", b"")
        if not more and self._is_chunked:
            after += b"0\r\n\r\n"
        # Joined with its frame it would be there twice.
        return (head + before, data, after) if len(data) > MAX_JOINED_BYTES else (head + before + data + after,)

    async def send_body(self, data: bytes, *, more: bool) -> None:
        """Write a part of the body, after the head if that is still held; the last one ends the response."""
        *pieces, last = self.framed(data, more=more)
        for piece in pieces:
            await self._owner.writer.write(piece)
        await self._owner.writer.write(last, last=not more)

    async def end_response(self) -> None:
        """Go on with the next request, or close the connection."""
        await self._owner.end_response(closes=self.closes)

    async def fail(self) -> None:
        """Answer 500 if nothing was written, and close the connection."""
        if not self.began:
            self.began = True
            await self._owner.writer.write(RESPONSE_500)
        await self._owner.end_response(closes=True)


def checked(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the headers of an application without those that the server writes.

    Raises:
        UnexpectedMessage: one cannot be a field of HTTP.
        TypeError: one is no bytes.
    """
    checked = []
    for raw_name, raw_value in headers:
        name, value = bytes(raw_name).strip(), bytes(raw_value).strip()
        if not NAME.fullmatch(name) or not VALUE.fullmatch(value):
            # Without the value: it may be a secret, and the error is logged.
            raise UnexpectedMessage(f"the header {name!r:.80} of a response cannot be sent in HTTP")
        if name.lower() != b"transfer-encoding":
            checked.append((name, value))
    return checked


def length_of(status: int, headers: Headers) -> int | None:
    """Return the length that a head promises. Raises `UnexpectedMessage` if it is none, or the status is none."""
    if not 200 <= status <= 999:
        raise UnexpectedMessage(f"{status} is not the status of a response")
    lengths = {value for name, value in headers if name.lower() == b"content-length"}
    if not lengths:
        return None
    length = lengths.pop()
    if lengths or not length.isdigit():
        raise UnexpectedMessage("a response has one content-length, which is a number")
    return int(length)


def says_close(headers: Headers) -> bool:
    return any(name.lower() == b"connection" and b"close" in value.lower() for name, value in headers)


def whole_response(status: int, body: bytes, headers: Headers, own: bytes, *, closes: bool) -> bytes:
    """Return a whole response; see `head_bytes` for its arguments."""
    # Nearly all are of this kind.
    if status == 200 and not headers and not closes and body:
        start = b"HTTP/1.1 200 \r\ncontent-length: %d\r\ncontent-type: application/json\r\n" % len(body)
        return b"".join((start, own, b"\r\n", body))
    return b"".join((head_bytes(status, head_of(status, body, headers), own, closes=closes), b"\r\n", body))


def head_bytes(status: int, headers: Headers, own: bytes, *, closes: bool = False) -> bytes:
    """Return a head without the line that ends it.

    Args:
        own: the fields that every response has.
    """
    close = b"connection: close\r\n" if closes and not says_close(headers) else b""
    return b"HTTP/1.1 %d \r\n%b%b%b" % (status, fields_bytes(headers), own, close)


def fields_bytes(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in headers])
