"""Frames of WebSocket (RFC 6455, 5): what a client sends, as whole messages, and what is sent to it.

`MessageReader` alone understands incoming frames. wsproto decodes them, except for text frames that come whole in one read, as
nearly all messages of MCP do: these are decoded in place, in a tenth of the time. Nothing is refused there. Fragments, control
frames, large frames and those that break a rule, and all that comes with and after them in the same read, are left to wsproto.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final, cast

from wsproto.frame_protocol import CloseReason, Frame, FrameDecoder, FrameProtocol, MessageDecoder, Opcode, ParseFailed

from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime import Account

from ..asgi.responses import Binary
from .config import COPIES

FIN_TEXT: Final = 0x81
FIN_CLOSE: Final = 0x88
MASKED: Final = 0x80
SMALL: Final = 126
MEDIUM: Final = 1 << 16
# Bytes of messages from which on they are no longer joined for one write.
MAX_WRITE: Final = 1 << 16
# A read of more bytes is counted while it is decoded.
PREPAID_READ: Final = 1 << 13
# A message may have `MAX_FRAGMENTS`, and one more for each `BYTES_PER_FRAGMENT`: even an empty frame costs microseconds.
MAX_FRAGMENTS: Final = 1024
BYTES_PER_FRAGMENT: Final = 16

OUTGOING: Final = FrameProtocol(client=False, extensions=[])
"""Makes whole frames, for any connection: it has a state in the middle of a message only."""


class MessageReader:
    """The messages in the bytes of one client.

    The parts of a message are joined at its end only: a buffer that grows with them would be copied for each, and leave holes in
    the heap.

    Args:
        limit: bytes that a message may have.
        account: counts what is kept of a message that has not ended, and a large read while it is decoded.

    Attributes:
        unread: bytes in which `next_text` may find a message.
        is_between: all that `next` has read so far belongs to whole messages.
    """

    def __init__(self, limit: int, account: Account) -> None:
        self.limit = limit
        self.unread = b""
        self.is_between = True
        self._account = account
        self._frames = FrameDecoder(client=False)
        self._messages = MessageDecoder()
        self._start = 0
        self._parts: list[bytes] = []
        self._size = self._fragments = 0
        self._drawn_parts = self._drawn_read = 0

    def feed(self, data: bytes) -> None:
        """Take received bytes; called when `next` has returned None."""
        if len(data) > PREPAID_READ:
            self._drawn_read = COPIES * len(data)
            self._account.draw(self._drawn_read)
        # In the middle of a message, bytes that look like a frame are a part of its payload.
        if self.is_between:
            self.unread, self._start = data, 0
        else:
            self._frames.receive_bytes(data)

    def next(self) -> bytes | Binary | Frame | None:
        """Return what comes next: a message, a text as UTF-8; a frame that is none; or None when all bytes are used.

        A frame is a control frame, or one of which a part of a message was kept.

        Raises:
            ParseFailed: the client broke a rule or a limit. The connection is to be closed with its code and its text.
        """
        if self.unread:
            text = self.next_text()
            if text is not None:
                return text
            self._frames.receive_bytes(self.unread[self._start :])
            self.unread, self.is_between = b"", False
        frame = None if self.is_between else self._frames.process_buffer()
        if frame is None:
            self._end_read()
            return None
        return frame if frame.opcode.iscontrol() else self._add(frame)

    def next_text(self) -> bytes | None:
        """Return the next message if it is a whole, masked text frame of less than 64 KiB of UTF-8; else None."""
        data, start = self.unread, self._start
        if len(data) < start + 6 or data[start] != FIN_TEXT or not data[start + 1] & MASKED:
            return None
        size = data[start + 1] & 0x7F
        body = start + 6
        if size == SMALL:
            size = int.from_bytes(data[start + 2 : start + 4], "big")
            body += 2
            # A length that is not in its shortest form breaks RFC 6455, 5.2.
            if size < SMALL:
                return None
        end = body + size
        if size == SMALL + 1 or end > len(data) or size > self.limit:
            return None
        payload = unmasked(data[body:end], data[body - 4 : body])
        try:
            payload.decode()
        except UnicodeDecodeError:
            return None
        self.unread, self._start = (data, end) if end < len(data) else (b"", 0)
        return payload

    def clear(self) -> None:
        """Forget the message that has not ended."""
        self._parts = []
        self._size = self._fragments = 0
        self._account.give_back(self._drawn_parts)
        self._drawn_parts = 0

    def _end_read(self) -> None:
        if not self.is_between:
            # Asked of wsproto and never tracked here: two states of one framing would sooner or later differ.
            is_in_frame = self._frames.header is not None or len(self._frames.buffer) > 0
            self.is_between = not is_in_frame and self._messages.opcode is None
        if self._drawn_read:
            self._account.give_back(self._drawn_read)
            self._drawn_read = 0

    def _add(self, frame: Frame) -> bytes | Binary | Frame:
        """Keep the payload of a frame, or a part of it; return the message if it has ended, else the frame."""
        payload = cast(bytes, frame.payload)
        # The characters are not used: they are made to find out early whether they are UTF-8.
        decoded = self._messages.process_frame(frame)
        # A message that comes whole is handed on at once, and is counted where it waits.
        if not decoded.message_finished or self._parts:
            self._draw(sys.getsizeof(payload))
        self._size += len(payload)
        self._fragments += frame.frame_finished
        self._check()
        if payload:
            self._parts.append(payload)
        if not decoded.message_finished:
            return decoded
        data = b"".join(self._parts)
        self.clear()
        return data if decoded.opcode is Opcode.TEXT else Binary(data)

    def _draw(self, size: int) -> None:
        try:
            self._account.check(size)
        except LimitExceeded:
            # A reason has at most 123 bytes (RFC 6455, 5.5).
            reason = "the memory budget of this server is used up"
            raise ParseFailed(reason, CloseReason.TRY_AGAIN_LATER) from None
        self._account.draw(size)
        self._drawn_parts += size

    def _check(self) -> None:
        """Raise `ParseFailed` if the message is over a limit."""
        if self._size > self.limit:
            raise ParseFailed(f"a message may have {self.limit} bytes", CloseReason.MESSAGE_TOO_BIG)
        if self._fragments > MAX_FRAGMENTS + self._size // BYTES_PER_FRAGMENT:
            reason = f"a message may have {MAX_FRAGMENTS} fragments, and one for each {BYTES_PER_FRAGMENT} bytes"
            raise ParseFailed(reason, CloseReason.POLICY_VIOLATION)


def unmasked(payload: bytes, key: bytes) -> bytes:
    """RFC 6455, 5.3; as one number, because Python has no other way to treat all bytes at once."""
    size = len(payload)
    # A loop over the bytes would take about as long as the whole call for a message of a few kilobytes.
    pattern = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(pattern, "little")).to_bytes(size, "little")


def read_close(payload: bytes) -> tuple[int, str]:
    """Return the code and the reason in a close frame. Raises `ParseFailed` if they break a rule (RFC 6455, 7.4)."""
    # `FrameDecoder` does not look into a payload. What checks a close frame takes whole frames, which a server does not mask.
    protocol = FrameProtocol(client=True, extensions=[])
    protocol.receive_bytes(bytes((FIN_CLOSE, len(payload))) + payload)
    (frame,) = protocol.received_frames()
    return cast("tuple[int, str]", frame.payload)


def text_frame(payload: bytes) -> bytes:
    """Return UTF-8 as a whole text frame. For wsproto it would have to be decoded, and takes five times as long."""
    size = len(payload)
    if size < SMALL:
        return bytes((FIN_TEXT, size)) + payload
    if size < MEDIUM:
        return bytes((FIN_TEXT, SMALL)) + size.to_bytes(2, "big") + payload
    return bytes((FIN_TEXT, SMALL + 1)) + size.to_bytes(8, "big") + payload


def writes_of(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Make messages into text frames, and join those that are small: each result is one write."""
    waiting, size = list[bytes](), 0
    for message in messages:
        waiting.append(text_frame(message))
        size += len(message)
        # It may be large, and its frame is a copy.
        del message
        if size >= MAX_WRITE:
            joined, waiting, size = b"".join(waiting), [], 0
            yield joined
            del joined
    if waiting:
        yield b"".join(waiting)
