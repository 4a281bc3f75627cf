"""What a client's WebSocket runs over: the byte stream to a server, and what is watched on it.

trio-websocket bounds a message. It does not bound what comes before the handshake is done (the body of a refusal), nor how many
empty fragments make a message; and it does not say when bytes arrived last.
"""

from __future__ import annotations

import ssl
from math import inf
from typing import NamedTuple
from urllib.parse import urlsplit

import trio

MAX_HANDSHAKE = 256 * 1024
"""Bytes that a server may send before the connection is open, and along with the answer that opens it."""


class Address(NamedTuple):
    """Where a WebSocket URL leads.

    Attributes:
        authority: the host, and the port where it is not the scheme's own, as the Host header says it.
        resource: the path and the query.
    """

    secure: bool
    host: str
    port: int
    authority: str
    resource: str

    @classmethod
    def of(cls, url: str) -> Address:
        """Read a URL.

        Raises:
            ValueError: it is none of a WebSocket, has credentials in it, or a fragment (RFC 6455, 3).
        """
        parts = urlsplit(url)
        secure = parts.scheme == "wss"
        if parts.scheme not in ("ws", "wss") or not parts.hostname:
            raise ValueError(f"{url!r:.200} is not a ws(s) URL, such as 'ws://127.0.0.1:8000/mcp'")
        # Credentials in a URL end up in logs and process lists.
        if parts.username is not None:
            raise ValueError("a ws(s) URL has no user in it: send headers={'authorization': ...}")
        if "#" in url:
            raise ValueError("a ws(s) URL has no fragment")
        # They would go into the request line as they are, where a line break would start another header.
        if not url.isascii() or any(sign.isspace() for sign in url):
            raise ValueError(f"{url!r:.200} has characters that a URL escapes")
        usual = 443 if secure else 80
        port = parts.port or usual
        name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        resource = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(secure, parts.hostname, port, name if port == usual else f"{name}:{port}", resource)


class LimitedStream(trio.abc.Stream):
    """A byte stream that notes when bytes arrived, and ends when too many come at a time or a write takes too long.

    Attributes:
        last_received_at: when bytes came last, on Trio's clock.
        reading: whether a task waits for bytes; otherwise the time since the last bytes says nothing about the server.
        allowance: bytes that may still come; the owner raises it with each message.
        write_deadline: seconds that the server may take to read what is written at once; a pong too, for which the
            library's reader waits.
        stalled: a write took longer, and the stream was closed.
    """

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self.last_received_at = trio.current_time()
        self.reading = False
        self.allowance: float = MAX_HANDSHAKE
        self.write_deadline = inf
        self.stalled = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Raises `trio.BrokenResourceError` when more came than is allowed."""
        self.reading = True
        try:
            data = bytes(await self._stream.receive_some(max_bytes))
        finally:
            self.reading = False
        self.last_received_at = trio.current_time()
        self.allowance -= len(data)
        if self.allowance < 0:
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("the server sent too much at a time")
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Raises `trio.BrokenResourceError` when the server did not read in time."""
        with trio.move_on_after(self.write_deadline) as writing:
            await self._stream.send_all(data)
        if writing.cancelled_caught:
            self.stalled = True
            # Closed at once: after a part of a frame nothing else may follow, and the reader has to end as well.
            await trio.aclose_forcefully(self._stream)
            raise trio.BrokenResourceError("the server did not read in time")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def open_wire(address: Address, tls: ssl.SSLContext | None) -> LimitedStream:
    """Connect to a server, with TLS if its URL requires it. A cancel leaves nothing open.

    Raises:
        OSError: it cannot be reached; or its certificate is not one that `tls` trusts.
    """
    if not address.secure:
        return LimitedStream(await trio.open_tcp_stream(address.host, address.port))
    stream = await trio.open_ssl_over_tcp_stream(address.host, address.port, https_compatible=True, ssl_context=tls)
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError as error:
        await trio.aclose_forcefully(stream)
        raise OSError(f"TLS: {error.__cause__ or error}") from error
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return LimitedStream(stream)
