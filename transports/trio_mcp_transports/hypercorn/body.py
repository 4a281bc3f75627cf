"""The body of a request that has not come whole: who awaits it receives it from the connection."""

from __future__ import annotations

from typing import Final, Protocol

import h11

from ..asgi.access import HttpRejection
from ..asgi.requests import Body
from .request_head import RequestHead

MAX_DISCARDED_BYTES: Final = 64 * 1024
"""How long the rest of a body may be that is received and discarded when its request was answered before it came."""

CLOSE: Final = (b"connection", b"close")


class Source(Protocol):
    """The connection, as far as a body is concerned."""

    async def receive_more(self) -> bytes:
        """Receive bytes; b"" at the end of the connection."""
        ...

    def put_back(self, data: bytes) -> None:
        """Keep what was received and belongs to the next request."""

    async def send_continue(self) -> None:
        """Tell the client to send the body."""

    def log_refusal(self, status: int) -> None:
        """Log that what came is not valid HTTP."""


class SentBody(Body):
    """A body that is still to come.

    Attributes:
        left: bytes of it that were not received; None if that is not known.
    """

    __slots__ = ("_awaits_continue", "_source", "left")

    def __init__(self, source: Source, head: RequestHead) -> None:
        super().__init__()
        self.left: int | None = head.length
        self._source = source
        self._awaits_continue = head.expects_continue

    @property
    def may_be_discarded(self) -> bool:
        """Whether the rest of the body is small enough to be received and discarded."""
        return self.left is not None and self.left <= MAX_DISCARDED_BYTES

    async def receive(self) -> bytes:
        if self.left == 0:
            return b""
        data = await self._received()
        excess = len(data) - (self.left or 0)
        if excess > 0:
            self._source.put_back(data[-excess:])
            data = data[:-excess]
        self.left = (self.left or 0) - len(data)
        return data

    async def _received(self) -> bytes:
        """Receive bytes. Raises `HttpRejection` at the end of the connection."""
        if self._awaits_continue:
            self._awaits_continue = False
            await self._source.send_continue()
        data = await self._source.receive_more()
        if not data:
            # Nothing follows on the connection, whatever was promised.
            self.left = None
            raise HttpRejection(400, "The body ended too early.", [CLOSE])
        return data


class ChunkedBody(SentBody):
    """A body that is sent in chunks (RFC 9112, 7.1).

    Args:
        parser: has read the head.
    """

    __slots__ = ("_parser",)

    def __init__(self, source: Source, head: RequestHead, parser: h11.Connection) -> None:
        super().__init__(source, head)
        self._parser = parser

    async def receive(self) -> bytes:
        while self.left is None:
            try:
                event = self._parser.next_event()
            except h11.RemoteProtocolError as error:
                self._source.log_refusal(error.error_status_hint)
                raise HttpRejection(error.error_status_hint, "The body is not valid HTTP.", [CLOSE]) from None
            if isinstance(event, h11.Data):
                return bytes(event.data)
            if isinstance(event, h11.EndOfMessage):
                self.left = 0
                self._source.put_back(self._parser.trailing_data[0])
            else:
                self._parser.receive_data(await self._received())
        return b""
