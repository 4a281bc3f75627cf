"""A connection in memory for sweeps: it logs every message, and can be cut at any moment.

Messages cross as bytes, so a sweep has the parser and the limits of a real transport. The log has the order in which the server
received and sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import trio

from ...base.named_tuples import NamedTuple
from ...protocol.json_limits import CLIENT_LIMITS, DEFAULT_LIMITS, JsonLimits
from ...protocol.jsonrpc import Batch, Malformed, Message, Notification, Request, RequestId, dump, parse
from ...session import Envelope, MessageChannel, Received
from ...session.envelope import received
from ...types import JsonObject

UNBOUNDED: Final = 1 << 30
BUFFER: Final = 64


class Crossed(NamedTuple):
    """One message that was received or sent by the server.

    Attributes:
        inward: whether it came from the client.
        about: the request that it belongs to, if its sender said so.
    """

    inward: bool
    message: Message
    about: RequestId | None


class Wire:
    """Two ends, `client` and `server`, and the messages that have crossed between them.

    Args:
        buffer: messages that one end may be ahead of the other.
    """

    def __init__(self, buffer: int = BUFFER) -> None:
        self.buffer = buffer
        # Unbounded, because `cancel_open` and `cut` act between two steps and cannot wait. A semaphore in each end is the limit.
        to_server, at_server = trio.open_memory_channel[bytes](UNBOUNDED)
        to_client, at_client = trio.open_memory_channel[bytes](UNBOUNDED)
        self._inject = to_server
        self.client = WireEnd(self, to_server, at_client, CLIENT_LIMITS, self._client_sent)
        self.server = WireEnd(self, to_client, at_server, DEFAULT_LIMITS, self._server_sent, self._server_received)
        self.log: list[Crossed] = []
        self.crossed = 0
        """Number of messages so far; a batch counts as one."""
        self.open: dict[RequestId, None] = {}
        """The client's requests without an answer, from the moment they are sent; in order, since runs must be repeatable."""
        self.broken = False
        self.cut_at: int | None = None
        """The message after which the connection ends; None for never."""

    def cancel_open(self) -> int:
        """Cancel all open requests at the server without the client's knowledge; return how many there were."""
        if self.broken:
            return 0
        for request_id in self.open:
            params: JsonObject = {"requestId": request_id, "reason": "a sweep cancels it"}
            self._inject.send_nowait(dump(Notification("notifications/cancelled", params)))
        return len(self.open)

    def cut(self) -> None:
        """End the connection: messages on their way still arrive, and no later ones in either direction."""
        self.broken = True
        for end in (self.client, self.server):
            end.end_sending()

    def other(self, end: WireEnd) -> WireEnd:
        return self.server if end is self.client else self.client

    # Called by the two ends, for each message

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
        """Count one more message, and cut the connection if it was the last one allowed."""
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
        limits: JsonLimits,
        on_sent: Callable[[Message, RequestId | None], None],
        on_received: Callable[[Message], None] = lambda _message: None,
    ) -> None:
        self._wire = wire
        self._sends = sends
        self._receives = receives
        self._limits = limits
        self._on_sent = on_sent
        self._on_received = on_received
        self._room = trio.Semaphore(wire.buffer)

    async def send(self, value: Envelope) -> None:
        """Send one message, waiting while the buffer is full. After a cancel it was not sent.

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
        """Return the next message; raise `trio.EndOfChannel` after the last one. A cancel loses no message."""
        data = await self._receives.receive()
        self._wire.other(self).make_room()
        for message in members(data):
            self._on_received(message)
        return received(data, self._limits)

    def make_room(self) -> None:
        """Note that the other end has received a message of this one."""
        self._room.release()

    def end_sending(self) -> None:
        """Stop sending from this end."""
        self._sends.close()
        self.wake()

    def wake(self) -> None:
        """Wake the senders that wait for room, so that they find the connection closed."""
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
    """Yield the message, or the messages of a batch, without malformed ones."""
    # Also one that its receiver rejects.
    parsed = parse(data, CLIENT_LIMITS)
    for message in parsed.messages() if isinstance(parsed, Batch) else (parsed,):
        if not isinstance(message, Malformed):
            yield message
