"""Frames of WebSocket (RFC 6455, 5.2) that need no state, whole text frames in both directions, and the parts of a message."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final

from wsproto.connection import Connection

from trio_mcp.runtime import Account

from ..asgi.messages import Message

FIN_TEXT: Final = 0x81
MASKED: Final = 0x80
SMALL: Final = 126
MEDIUM: Final = 1 << 16
# Bytes of messages from which on they are no longer joined for one write.
MAX_WRITE: Final = 1 << 16


def text_frame(payload: bytes) -> bytes:
    """A whole unmasked text frame, as a server sends it (RFC 6455, 5.2)."""
    size = len(payload)
    if size < SMALL:
        return bytes((FIN_TEXT, size)) + payload
    if size < MEDIUM:
        return bytes((FIN_TEXT, 126)) + size.to_bytes(2, "big") + payload
    return bytes((FIN_TEXT, 127)) + size.to_bytes(8, "big") + payload


def writes_of(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Make messages into frames, and join those that are small: each result is one write."""
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


def whole_text_frame(data: bytes, start: int) -> tuple[bytes, int] | None:
    """The payload of the frame at `start` and where the next begins.

    None unless it is a whole, masked text frame with nothing special about it, of less than 64 KiB of UTF-8.
    """
    if len(data) < start + 6 or data[start] != FIN_TEXT or not data[start + 1] & MASKED:
        return None
    size = data[start + 1] & 0x7F
    body = start + 6
    if size == 126:
        size = int.from_bytes(data[start + 2 : start + 4], "big")
        body += 2
        if size < SMALL:
            # The length is not in its shortest form, which breaks RFC 6455, 5.2. The slow path lets wsproto refuse it
            # with the right code.
            return None
    end = body + size
    if size == 127 or end > len(data):
        return None
    payload = unmasked(data[body:end], data[body - 4 : body])
    try:
        # Text must be UTF-8 (RFC 6455, 8.1). Bytes that are not take the slow path, where wsproto closes with 1007.
        payload.decode()
    except UnicodeDecodeError:
        return None
    return payload, end


def unmasked(payload: bytes, key: bytes) -> bytes:
    """RFC 6455, 5.3; as one number, because Python has no other way to treat all bytes at once."""
    size = len(payload)
    # A loop over the bytes would take about as long as the whole call for a message of a few kilobytes.
    pattern = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(pattern, "little")).to_bytes(size, "little")


def between_messages(connection: Connection) -> bool:
    """Whether wsproto has read nothing of a frame or message that has not ended; False when it cannot be told."""
    try:
        frames, messages = connection._proto._frame_decoder, connection._proto._message_decoder  # noqa: SLF001
        return frames.header is None and not len(frames.buffer) and messages.opcode is None
    # Another version of wsproto has other names inside. False costs the fast path and nothing else.
    except AttributeError:
        return False


class MessageTooLarge(Exception):
    """A message has more bytes than it may have."""


class Parts:
    """The parts of a message that has not ended, counted in bytes.

    They are joined at the end only: a buffer that grows with them would be copied for each, and leave holes in the heap.

    Args:
        limit: bytes that a message may have.
        account: counts what is kept.

    Attributes:
        size: bytes of the message.
        fragments: its frames that have ended.
    """

    def __init__(self, limit: int, account: Account) -> None:
        self.limit = limit
        self.size = 0
        self.fragments = 0
        self._account = account
        self._drawn = 0
        self._parts: list[str | bytes | bytearray] = []

    def add(self, data: str | bytes | bytearray, *, is_last: bool, ends_frame: bool) -> None:
        """Keep a part. Raises `MessageTooLarge`, or `LimitExceeded` if the memory budget has no room."""
        # A message that comes whole is handed on at once, and is counted where it waits.
        if not is_last or self._drawn:
            size = sys.getsizeof(data)
            self._account.check(size)
            self._account.draw(size)
            self._drawn += size
        self.fragments += ends_frame
        # Pure ASCII has as many bytes as characters, so most messages need no second encoding.
        self.size += len(data.encode()) if isinstance(data, str) and not data.isascii() else len(data)
        if self.size > self.limit:
            raise MessageTooLarge
        # The first even if it is empty: it tells text from bytes.
        if data or not self._parts:
            self._parts.append(data)

    def message(self) -> Message:
        """Return the whole message as an ASGI event, and forget its parts."""
        parts = self._parts
        text = [part for part in parts if isinstance(part, str)]
        is_text = len(text) == len(parts)
        data = None if is_text else b"".join(part for part in parts if not isinstance(part, str))
        message: Message = {"type": "websocket.receive", "bytes": data, "text": "".join(text) if is_text else None}
        self.clear()
        return message

    def clear(self) -> None:
        """Forget the parts."""
        self._parts = []
        self.size = self.fragments = 0
        self._account.give_back(self._drawn)
        self._drawn = 0
