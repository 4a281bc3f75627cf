"""A connection in memory whose every message is seen, and which can be cut at any moment: what a sweep tests over.

Messages cross as bytes, so strictness and limits are those of a real wire. The log is the server's: in the order in which it
received and sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import trio

from ...protocol.jsonrpc import Batch, Malformed, Message, Notification, Request, RequestId, dump, parse
from ...session import Envelope, MessageChannel, Received
from ...types import JsonObject

UNBOUNDED: Final = 1 << 30
BUFFER: Final = 64


class Crossed(NamedTuple):
    """One message that was received or sent by the server.

    Attributes:
        inward: it came from the client.
        about: the request it belongs to, as far as its sender said so.
    """

    inward: bool
    message: Message
    about: RequestId | None


class Wire:
    """Two ends, `client` and `server`, and what has crossed between them.

    Args:
        buffer: messages that either end may be ahead of the other.
    """

    def __init__(self, buffer: int = BUFFER) -> None:
        self.buffer = buffer
        to_server, at_server = trio.open_memory_channel[bytes](UNBOUNDED)  # each end bounds what it has on its way
        to_client, at_client = trio.open_memory_channel[bytes](UNBOUNDED)
        self._inject = to_server
        self.client = WireEnd(self, to_server, at_client, self._client_sent)
        self.server = WireEnd(self, to_client, at_server, self._server_sent, self._server_received)
        self.log: list[Crossed] = []
        self.crossed = 0
        """Messages so far; an array counts as one."""
        self.open: dict[RequestId, None] = {}
        """The client's requests that the server has not answered, from the moment they are sent."""
        self.broken = False
        self.cut_at: int | None = None
        """The message after which the connection ends; None for never."""

    def cancel_open(self) -> int:
        """Tell the server, behind the client's back, that no open request is wanted any more; returns how many there were."""
        if self.broken:
            return 0
        for request_id in self.open:
            params: JsonObject = {"requestId": request_id, "reason": "a sweep cancels it"}
            self._inject.send_nowait(dump(Notification("notifications/cancelled", params)))
        return len(self.open)

    def cut(self) -> None:
        """End the connection: what is on its way still arrives, and then nothing more in either direction."""
        self.broken = True
        for end in (self.client, self.server):
            end.end_sending()

    def other(self, end: WireEnd) -> WireEnd:
        return self.server if end is self.client else self.client

    # what crosses

    def _client_sent(self, message: Message, _about: RequestId | None) -> None:
        if isinstance(message, Request):
            self.open[message.id] = None

    def _server_received(self, message: Message) -> None:
        self.log.append(Crossed(True, message, None))

    def _server_sent(self, message: Message, about: RequestId | None) -> None:
        self.log.append(Crossed(False, message, about))
        if not isinstance(message, Request | Notification) and message.id is not None:
            self.open.pop(message.id, None)

    def count(self) -> None:
        """One more has crossed."""
        self.crossed += 1
        if self.crossed == self.cut_at:
            self.cut()


class WireEnd(MessageChannel):
    """One end of a `Wire`."""

    def __init__(
        self,
        wire: Wire,
        sends: trio.MemorySendChannel[bytes],
        receives: trio.MemoryReceiveChannel[bytes],
        on_sent: Callable[[Message, RequestId | None], None],
        on_received: Callable[[Message], None] = lambda _message: None,
    ) -> None:
        self._wire = wire
        self._sends = sends
        self._receives = receives
        self._on_sent = on_sent
        self._on_received = on_received
        self._room = trio.Semaphore(wire.buffer)

    async def send(self, value: Envelope) -> None:
        """Send one message, waiting while the wire buffers all it may. A cancel means that it was not sent.

        Raises:
            trio.BrokenResourceError: the connection was cut, or the other end closed.
        """
        data = dump(value.message)
        await self._room.acquire()
        try:
            self._sends.send_nowait(data)
        except trio.ClosedResourceError:
            if not self._wire.broken:
                raise
            raise trio.BrokenResourceError("the connection was cut") from None
        for message in members(data):
            self._on_sent(message, value.about)
        self._wire.count()

    async def receive(self) -> Envelope[Received]:
        """Return the next message. A cancel loses nothing. Raises `trio.EndOfChannel` when there will be no more."""
        data = await self._receives.receive()
        self._wire.other(self).make_room()
        for message in members(data):
            self._on_received(message)
        return Envelope(parse(data), size=len(data))

    def make_room(self) -> None:
        """One message less is on its way from here."""
        self._room.release()

    def end_sending(self) -> None:
        """Nothing more is sent from this end."""
        self._sends.close()
        self.wake()

    def wake(self) -> None:
        """Let those who wait for room find out that there will be none."""
        for _ in range(self._room.statistics().tasks_waiting):
            self._room.release()

    async def aclose(self) -> None:
        """Close this end. It is closed even if cancelled."""
        self.end_sending()
        self._receives.close()
        other = self._wire.other(self)
        other.wake()
        await trio.lowlevel.checkpoint()

    def __repr__(self) -> str:
        return f"<WireEnd crossed={self._wire.crossed}{' cut' if self._wire.broken else ''}>"


def members(data: bytes) -> Iterator[Message]:
    """Yield the message, or the messages of an array; nothing if it is malformed."""
    parsed = parse(data)
    for message in parsed.messages() if isinstance(parsed, Batch) else (parsed,):
        if not isinstance(message, Malformed):
            yield message
