"""Server-sent events, written and read as the HTML standard says (section 9.2, "Server-sent events").

Two points are stricter than in a browser. The size of an event is limited. And bytes that are not UTF-8 end the stream: replaced
by U+FFFD, as a browser does it, they would become a message that was never sent.
"""

# What a line does; a block is the lines between two blank ones.
#
#   line            block                 decoder
#   data: TEXT      one more line         -
#   event: TEXT     its type              -
#   id: TEXT        its id                last_event_id, when the block ends, even without data
#   retry: MS       -                     retry, immediately
#   (blank)         becomes an event      starts a new block; without data there is no event
#   : TEXT, other   ignored               -
#
# Example: the bytes `id: 7\ndata:\n\n`, `data: a\n`, `data: b\n\n` give two events, '' and 'a\nb'; after both `last_event_id` is
# 7, since only another id changes it.

from __future__ import annotations

from typing import Final

from ...base.named_tuples import NamedTuple
from ...errors import RemoteProtocolError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAX_RETRY_DIGITS = 15


class SseEvent(NamedTuple):
    """One event.

    Attributes:
        data: the text; reading turns each line break in it into `\\n`.
        event: its type.
        id: the id of this event itself, or None; see also `SseDecoder.last_event_id`.
        retry: milliseconds to wait before reconnecting, or None if the event does not say.
    """

    data: str
    event: str = "message"
    id: str | None = None
    retry: int | None = None


# Writing. The data of an event is one line here: JSON, which has no raw line breaks, or a URI. So nothing is searched or
# split, and an event costs one formatting. This is the only place that writes the format.

KEEP_ALIVE: Final = b": still here\n\n"
"""A comment, which the client ignores. It keeps proxies from closing a silent connection."""


def encode_event(data: bytes, event_id: bytes | None = None, *, event: bytes = b"message") -> bytes:
    """Return an event on the wire.

    Args:
        data, event_id, event: without CR, LF and NUL; `event` is its type and not empty. Nothing is checked.
    """
    if event_id is None:
        return b"".join((b"event: ", event, b"\ndata: ", data, b"\n\n"))
    return b"".join((b"event: ", event, b"\nid: ", event_id, b"\ndata: ", data, b"\n\n"))


def encode_priming_event(event_id: bytes) -> bytes:
    """Return an event without data, which only gives the client an id to resume after (2025-11-25)."""
    return b"id: %b\ndata: \n\n" % event_id


def encode_retry(seconds: float) -> bytes:
    """Return a field that tells the client how long to wait before it reconnects."""
    return b"retry: %d\n\n" % round(seconds * 1000)


# Reading.


class SseDecoder:
    """Reads events from a stream of bytes, in time linear in the bytes and with memory bounded by the limit.

    An event without its blank line at the end of the stream is dropped.

    Args:
        max_event: maximum bytes of the lines of one event, without line ends, comments and unknown fields, and of any one line.
    """

    def __init__(self, max_event: int) -> None:
        if max_event < 1:
            raise ValueError(f"max_event must be at least 1, not {max_event}")
        self._max_event = max_event
        self._error: RemoteProtocolError | None = None
        self._first_line = True
        self._line = bytearray()  # the start of a line whose end has not arrived
        # A \r may be a whole line end or half of \r\n, which the next bytes decide. The line is not held back until then.
        self._after_cr = False
        self.last_event_id = ""
        """What to send as `Last-Event-ID` when connecting again; empty: send none. Kept until an event changes it."""
        self.retry: int | None = None
        """The last `retry` of the stream in milliseconds, or None; it counts even without an event."""
        self._start_block()

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events that these bytes complete.

        Raises:
            RemoteProtocolError: an event is over the limit (-32600, naming it) or not UTF-8 (-32700). The decoder cannot be used
                any more. If events were complete before the error, they are returned, and the next call raises: call
                `feed(b"")` at the end of the stream for an error that was held back.
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
        if self._size + len(self._line) + added > self._max_event:
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
            self._start_block()

    def _start_block(self) -> None:
        self._size = 0
        self._data = bytearray()
        self._event = b""
        self._id: str | None = None
        self._retry: int | None = None

    def _add_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match name:
            case b"data":
                self._data += value + b"\n"
            case b"event":
                self._event = value
            case b"id" if b"\0" not in value:
                self._id = _decode(value)
            case b"retry" if value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
                self._retry = self.retry = int(value)
            case _:
                return  # a comment, or a field that the standard says to ignore
        self._size += len(line)

    def _end_block(self, events: list[SseEvent]) -> None:
        if self._id is not None:
            self.last_event_id = self._id
        # An empty line of data counts; without any there is no event.
        if self._data:
            data, event = _decode(bytes(self._data[:-1])), _decode(self._event) or "message"
            events.append(SseEvent(data, event, self._id, self._retry))


def _decode(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise RemoteProtocolError("A server-sent event is not UTF-8.", code=-32700) from None
