"""Lines of bytes, as the stdio transport frames messages (MCP, transports: messages are delimited by newlines)."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import RemoteProtocolError


@dataclass(frozen=True, slots=True)
class LineTooLong:
    """Stands where a line over the limit was; the next line is read as usual.

    Attributes:
        limit: the most bytes a line may have, without its line end.
    """

    limit: int

    def error(self) -> RemoteProtocolError:
        """What to answer the peer: -32700, since the message was never read."""
        return RemoteProtocolError(f"The line has more than {self.limit} bytes (max_line).", code=-32700)


class LineDecoder:
    """Cuts a stream of bytes into lines, in time linear in the bytes and memory bounded by the limit.

    Only `\\n` ends a line, for JSON strings may hold every other kind of line break. One `\\r` before it is dropped,
    and blank lines are skipped. What follows the last `\\n` is never delivered: when the stream ends, it was cut short.

    Args:
        max_line: the most bytes a line may have, without its line end.
    """

    def __init__(self, max_line: int) -> None:
        if max_line < 1:
            raise ValueError(f"max_line must be at least 1, not {max_line}")
        self._max_line = max_line
        self._rest = bytearray()
        self._skipping = False

    def __repr__(self) -> str:
        state = "skipping a line over the limit" if self._skipping else f"{self.buffered} bytes buffered"
        return f"<LineDecoder: {state}, max_line={self._max_line}>"

    @property
    def buffered(self) -> int:
        """How many bytes of an unfinished line are held."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[bytes | LineTooLong]:
        """The lines that these bytes complete, without their ends.

        A line over the limit is reported at the byte that breaks it, and once, whether or not its end ever comes.
        """
        lines: list[bytes | LineTooLong] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._add(data, start, end, lines)
            self._end(lines)
            start = end + 1
        self._add(data, start, len(data), lines)
        return lines

    def _add(self, data: bytes, start: int, end: int, lines: list[bytes | LineTooLong]) -> None:
        if self._skipping or start == end:
            return
        # One byte more than the limit is kept while it may be the `\r` of a line end.
        size = len(self._rest) + end - start
        if size <= self._max_line or (size == self._max_line + 1 and data[end - 1] == 0x0D):
            self._rest += memoryview(data)[start:end]
            return
        self._rest.clear()
        self._skipping = True
        lines.append(LineTooLong(self._max_line))

    def _end(self, lines: list[bytes | LineTooLong]) -> None:
        self._skipping = False
        line = bytes(self._rest).removesuffix(b"\r")
        self._rest.clear()
        if line.strip(b" \t\r"):
            lines.append(line)
