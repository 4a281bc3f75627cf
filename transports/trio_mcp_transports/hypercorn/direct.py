"""The short way between a guarded WebSocket and our own endpoint, beside the ASGI messages, which it never contradicts.

Nearly all messages of MCP are text frames that come whole in one read. By the long way each costs two turns of Trio's loop and
a walk through hypercorn's and wsproto's layers, which is more than the call itself costs. Here such a frame is decoded in
place and handed to the endpoint while that waits for it, and an answer is framed and written where it is made. Everything else
goes the long way: fragments, control frames, frames that break a rule, TLS, and whatever has to wait.
"""

# pyright: basic
# Hypercorn's own types are partial.
from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from wsproto.connection import Connection, ConnectionState

FIN_TEXT: Final = 0x81
MASKED: Final = 0x80
SMALL: Final = 126
MEDIUM: Final = 1 << 16


class FastWebSocket:
    """What an endpoint may do with its WebSocket beside receiving and sending ASGI messages.

    Attributes:
        on_message: given the UTF-8 of a message while the application waits in `receive` and nothing came before; False to
            have it the long way.
        offer: hands a message over, as the inbox sees fit; set with the inbox.
    """

    __slots__ = ("_send", "_write_now", "connection", "offer", "on_message")

    def __init__(self, write_now: Callable[[bytes], bool], send: Callable[[bytes], Awaitable[None]]) -> None:
        self.on_message: Callable[[bytes], bool] | None = None
        self.offer: Callable[[bytes], bool] = refuse
        self.connection: Connection | None = None
        """Wsproto's state, once the upgrade was accepted."""
        self._write_now = write_now
        self._send = send

    def send_nowait(self, message: bytes) -> bool:
        """Send one message at once, or nothing of it; False for nothing."""
        connection = self.connection
        if connection is None or connection.state is not ConnectionState.OPEN:
            return False
        return self._write_now(text_frame(message))

    async def send(self, messages: Iterable[bytes]) -> None:
        """Send messages in order, in one write.

        Raises:
            ClientDisconnected: the client has gone, or did not read in time.
        """
        await self._send(b"".join([text_frame(message) for message in messages]))


def refuse(_message: bytes) -> bool:
    return False


def text_frame(payload: bytes) -> bytes:
    """A whole unmasked text frame, as a server sends it (RFC 6455, 5.2)."""
    size = len(payload)
    if size < SMALL:
        return bytes((FIN_TEXT, size)) + payload
    if size < MEDIUM:
        return bytes((FIN_TEXT, 126)) + size.to_bytes(2, "big") + payload
    return bytes((FIN_TEXT, 127)) + size.to_bytes(8, "big") + payload


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
            return None  # not the shortest form: for wsproto to refuse
    end = body + size
    if size == 127 or end > len(data):
        return None
    payload = unmasked(data[body:end], data[body - 4 : body])
    try:
        payload.decode()
    except UnicodeDecodeError:
        return None
    return payload, end


def unmasked(payload: bytes, key: bytes) -> bytes:
    """RFC 6455, 5.3; as one number, because Python has no other way to treat all bytes at once."""
    size = len(payload)
    pattern = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(pattern, "little")).to_bytes(size, "little")


def between_messages(connection: Any) -> bool:
    """Whether wsproto has read nothing of a frame or message that has not ended; False when it cannot be told."""
    try:
        frames, messages = connection._proto._frame_decoder, connection._proto._message_decoder  # noqa: SLF001
        return frames.header is None and not len(frames.buffer) and messages.opcode is None
    except AttributeError:  # another version of wsproto
        return False
