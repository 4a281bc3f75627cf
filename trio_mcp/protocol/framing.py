"""Lines of bytes: the framing of the stdio transport (MCP, transports: messages are delimited by newlines)."""

# States of the decoder: it holds the start of a line, or skips the rest of one that is over the limit.
#
#   state      bytes                          next       result
#   reading    no line end, within the limit  reading    the bytes are buffered
#   reading    no line end, over the limit    skipping   LineTooLong, immediately; the buffer is freed
#   reading    a line end                     reading    the line, unless it is blank
#   reading    `discard`                      skipping   LineTooLong, returned; the buffer is freed
#   skipping   no line end                    skipping   nothing
#   skipping   a line end                     reading    LongLineEnded

from __future__ import annotations

from codecs import BOM_UTF8
from typing import Final, TypeAlias

from pydantic_core import from_json

from ..errors import RemoteProtocolError
from .jsonrpc import SERVER_BUSY

EXCERPT: Final = 1024
"""Bytes that are kept of the start and of the end of a line over the limit."""


class LineTooLong:
    """Takes the place of a line over the limit; the next line is read as usual. Two are equal whatever the lines were.

    Attributes:
        limit: maximum bytes of a line, without its line end.
        head: the first bytes of the line, which may say what it was.
        busy: why there was no room for a line within the limit; None for one over the limit.
    """

    __slots__ = ("busy", "head", "limit")

    def __init__(self, limit: int, head: bytes = b"", busy: str | None = None) -> None:
        self.limit = limit
        self.head = head
        self.busy = busy

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LineTooLong) and (other.limit, other.busy) == (self.limit, self.busy)

    def __hash__(self) -> int:
        return hash((self.limit, self.busy))

    def __repr__(self) -> str:
        return f"LineTooLong({self.limit}, busy={self.busy!r})"

    def error(self) -> RemoteProtocolError:
        """Return the error to answer with: -32700, since the message was never read, or -32000 if it may be sent again later."""
        if self.busy is not None:
            return RemoteProtocolError(self.busy, code=SERVER_BUSY)
        return RemoteProtocolError(f"The line has more than {self.limit} bytes (max_line).", code=-32700)


class LongLineEnded:
    """Reports the end of a line over the limit. Two are equal whatever the lines were.

    Attributes:
        line: the report from where the line exceeded the limit.
        tail: the last bytes of the line.
    """

    __slots__ = ("line", "tail")
    __match_args__ = ("line", "tail")

    def __init__(self, line: LineTooLong, tail: bytes = b"") -> None:
        self.line = line
        self.tail = tail

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LongLineEnded) and other.line == self.line

    def __hash__(self) -> int:
        return hash(self.line)

    def __repr__(self) -> str:
        return f"LongLineEnded({self.line!r})"


Line: TypeAlias = bytes | LineTooLong | LongLineEnded


class LineDecoder:
    """Splits a stream of bytes into lines, in time linear in the bytes and with memory bounded by the limit.

    Only `\\n` ends a line, because JSON strings may hold every other kind of line break. One `\\r` before it is dropped; blank
    lines are skipped. When the stream ends, what comes after the last `\\n` was cut off, unless it is a whole object (`finish`).

    Args:
        max_line: maximum bytes of a line, without its line end.
    """

    def __init__(self, max_line: int) -> None:
        if max_line < 1:
            raise ValueError(f"max_line must be at least 1, not {max_line}")
        self._max_line = max_line
        self._rest = bytearray()
        self._skipped: LineTooLong | None = None
        self._tail = b""

    def __repr__(self) -> str:
        state = "skipping a line over the limit" if self._skipped else f"{self.buffered} bytes buffered"
        return f"<LineDecoder: {state}, max_line={self._max_line}>"

    @property
    def buffered(self) -> int:
        """Number of buffered bytes of an unfinished line."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that these bytes complete, without their ends.

        A line over the limit is reported with the byte that exceeds it, whether or not its end ever comes, and again at its end.
        """
        lines: list[Line] = []
        *complete, rest = data.split(b"\n")
        for piece in complete:
            reads_whole = not self._rest and self._skipped is None and len(piece) <= self._max_line
            # Nearly every line: it is neither blank, nor has a line end to drop.
            if reads_whole and piece[:1] == b"{" and piece[-1:] == b"}":
                lines.append(piece)
            else:
                self._add(piece, lines)
                self._end(lines)
        if rest:
            self._add(rest, lines)
        return lines

    def finish(self) -> bytes | None:
        """Return the line without an end that the stream ends with, if it is a whole object: it was not cut off then."""
        line = bytes(self._rest).strip()
        self._rest.clear()
        try:
            return line if line.endswith(b"}") and isinstance(from_json(line), dict) else None
        except ValueError:
            return None

    def discard(self, why: str) -> LineTooLong:
        """Drop the unfinished line, for which there is no room, and skip the rest of it; return what takes its place."""
        self._tail = bytes(self._rest[-EXCERPT:])
        self._skipped = LineTooLong(self._max_line, bytes(self._rest[:EXCERPT]), why)
        self._rest.clear()
        return self._skipped

    def _add(self, piece: bytes, lines: list[Line]) -> None:
        if not piece:
            return
        if self._skipped is not None:
            self._tail = (self._tail + piece[-EXCERPT:])[-EXCERPT:]
            return
        # One byte more than the limit is kept while it may be the `\r` of a line end.
        size = len(self._rest) + len(piece)
        if size <= self._max_line or (size == self._max_line + 1 and piece.endswith(b"\r")):
            self._rest += piece
            return
        self._tail = bytes(self._rest[-EXCERPT:] + piece[-EXCERPT:])[-EXCERPT:]
        self._rest += piece[:EXCERPT]
        self._skipped = LineTooLong(self._max_line, bytes(self._rest[:EXCERPT]))
        self._rest.clear()
        lines.append(self._skipped)

    def _end(self, lines: list[Line]) -> None:
        if self._skipped is not None:
            lines.append(LongLineEnded(self._skipped, self._tail.removesuffix(b"\r")))
            self._skipped, self._tail = None, b""
            return
        line = bytes(self._rest).removesuffix(b"\r")
        self._rest.clear()
        # A mark alone is no text. One before a text is the reader's to skip, as over every transport.
        if line.removeprefix(BOM_UTF8).strip(b" \t\r"):
            lines.append(line)
