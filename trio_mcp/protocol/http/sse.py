"""Server-sent events, written and read as the HTML standard says (section 9.2, "Server-sent events").

Two points are stricter than in a browser. An event has a limit. And bytes that are not UTF-8 end the stream instead of
turning into U+FFFD, which would pass on a message that was never sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...errors import RemoteProtocolError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_RETRY_DIGITS = 15


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event.

    Attributes:
        data: the text; reading turns each line break in it into `\\n`.
        event: its type.
        id: the id that this event itself carried, or None; see also `SseDecoder.last_event_id`.
        retry: how long to wait before connecting again, in milliseconds, or None when the event does not say.
    """

    data: str
    event: str = "message"
    id: str | None = None
    retry: int | None = None


# Writing. The data of an event is one line here: JSON, which has no raw line breaks, or a URI. So nothing is searched or
# split, and an event costs one formatting. This is the only place that writes the format.

KEEP_ALIVE: Final = b": still here\n\n"
"""A comment: it reaches the other side and means nothing there."""


def encode_event(data: bytes, event_id: bytes | None = None, *, event: bytes = b"message") -> bytes:
    """Return an event on the wire.

    Args:
        data, event_id, event: without CR, LF and NUL; `event` is its type and not empty. Nothing is checked.
    """
    if event_id is None:
        return b"event: %b\ndata: %b\n\n" % (event, data)
    return b"event: %b\nid: %b\ndata: %b\n\n" % (event, event_id, data)


def encode_priming_event(event_id: bytes) -> bytes:
    """Return an event without data, which only gives the client an id to resume after (2025-11-25)."""
    return b"id: %b\ndata: \n\n" % event_id


def encode_retry(seconds: float) -> bytes:
    """Return the advice to wait for so long before connecting again."""
    return b"retry: %d\n\n" % round(seconds * 1000)


# Reading.


class SseDecoder:
    """Reads events from a stream of bytes, in time linear in the bytes and memory bounded by the limit.

    An event that the stream cuts short is never delivered.

    Args:
        max_event: the most bytes that the lines of one event may have, without line ends, comments and unknown fields;
            no other line may have more either.
    """

    def __init__(self, max_event: int) -> None:
        if max_event < 1:
            raise ValueError(f"max_event must be at least 1, not {max_event}")
        self._max_event = max_event
        self._error: RemoteProtocolError | None = None
        self._first_line = True
        self._line = bytearray()  # the start of a line whose end has not come
        self._after_cr = False  # a \n that comes next belongs to that \r
        self._block = _Block()
        self._last_event_id = ""
        self._retry: int | None = None

    def __repr__(self) -> str:
        return f"<SseDecoder: {self._block.size + len(self._line)} bytes buffered, max_event={self._max_event}>"

    @property
    def last_event_id(self) -> str:
        """What to send as `Last-Event-ID` when connecting again; empty: nothing. Kept until an event changes it."""
        return self._last_event_id

    @property
    def retry(self) -> int | None:
        """The last `retry` of the stream in milliseconds, or None; it counts even without an event."""
        return self._retry

    def feed(self, data: bytes) -> list[SseEvent]:
        """The events that these bytes complete.

        Raises:
            RemoteProtocolError: an event is over the limit (-32600, naming it) or not UTF-8 (-32700). The decoder is
                spent then. Events complete before the flaw come first: they are returned, and the next call raises;
                call `feed(b"")` at the end of the stream to learn of an error that waits.
        """
        if self._error is not None:
            raise self._error
        events: list[SseEvent] = []
        try:
            self._read(data, events)
        except RemoteProtocolError as error:
            self._error = error
            if not events:
                raise
        return events

    def _read(self, data: bytes, events: list[SseEvent]) -> None:
        if not data:
            return
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        # For bytes, and unlike for str, splitlines knows \r\n, \r and \n only.
        for piece in data.splitlines(keepends=True):
            line = piece.rstrip(b"\r\n")
            self._check_size(len(line))
            self._line += line
            if len(line) != len(piece):
                self._end_line(events)

    def _check_size(self, added: int) -> None:
        if self._block.size + len(self._line) + added > self._max_event:
            raise RemoteProtocolError(f"A server-sent event has more than {self._max_event} bytes (max_event).")

    def _end_line(self, events: list[SseEvent]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if line:
            self._add_field(line)
        else:
            self._end_block(events)

    def _add_field(self, line: bytes) -> None:
        self._block.add(line)
        if self._block.retry is not None:
            self._retry = self._block.retry

    def _end_block(self, events: list[SseEvent]) -> None:
        block, self._block = self._block, _Block()
        if block.id is not None:
            self._last_event_id = block.id
        event = block.event()
        if event is not None:
            events.append(event)


class _Block:
    """The fields between two blank lines."""

    def __init__(self) -> None:
        self.size = 0
        self._data = bytearray()
        self._event = b""
        self.id: str | None = None
        self.retry: int | None = None

    def add(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data += value + b"\n"
            case b"event":
                self._event = value
            case b"id" if b"\0" not in value:
                self.id = _decode(value)
            case b"retry" if value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
                self.retry = int(value)
            case _:
                return  # a comment, or to be ignored
        self.size += len(line)

    def event(self) -> SseEvent | None:
        """The event, or None: without a line of data, be it empty, there is none."""
        if not self._data:
            return None
        return SseEvent(_decode(bytes(self._data[:-1])), _decode(self._event) or "message", self.id, self.retry)


def _decode(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise RemoteProtocolError("A server-sent event is not UTF-8.", code=-32700) from None
