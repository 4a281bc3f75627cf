"""The interface between a transport and a session: a channel of envelopes, and everything such a channel may offer.

A transport implements `send`, `receive` and `aclose`. The other members have defaults, which are right for every channel;
a transport overrides one where its wire can do better (one write for several messages, a message handed over without a turn
of the event loop). A plain `trio.abc.Channel[Envelope]` works too: `as_message_channel` gives it the defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, cast
from urllib.parse import urlsplit

import trio

from .. import session
from ..runtime import Account, Outbox
from ..runtime.loop_turn import TURN, LoopTurn
from .envelope import ANONYMOUS, Envelope, Peer, Received, Sent
from .raised import RaisedErrors

MESSAGE_COST: Final = 512
"""What a message costs of a turn of the event loop besides its bytes (`LoopTurn.spent`)."""

# How a peer is connected, in the attributes of OpenTelemetry.

NO_NETWORK: Final[Mapping[str, str | int]] = MappingProxyType({})
OVER_PIPE: Final[Mapping[str, str | int]] = MappingProxyType({"network.transport": "pipe"})
OVER_HTTP: Final[Mapping[str, str | int]] = MappingProxyType(
    {"network.transport": "tcp", "network.protocol.name": "http"}
)
OVER_WEBSOCKET: Final[Mapping[str, str | int]] = MappingProxyType(
    {"network.transport": "tcp", "network.protocol.name": "websocket"}
)


def address_of(url: str) -> dict[str, str | int]:
    """Return the attributes with the address of a server."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme in ("https", "wss") else 80)
    return {"server.address": parts.hostname or "", "server.port": port}


class MessageChannel(trio.abc.SendChannel[Envelope[Sent]], trio.abc.ReceiveChannel[Envelope[Received]]):
    """Base class for the channel of a transport: sends and receives the messages of one connection.

    `send` and `receive` behave as those of Trio's channels: `trio.EndOfChannel` ends `receive`, `trio.BrokenResourceError` says
    that the connection failed, `trio.ClosedResourceError` that this end was closed. A message is sent whole or not at all.

    Attributes:
        on_stop: set by the session while it serves the channel. A channel calls it when the process must end while the
            peer is still connected: the session then ends its calls and responds to them. None while nothing serves the channel.
        stop_reading: set by the session while it serves the channel. A channel calls it to stop the session from reading: a
            `receive` in progress is cancelled, and the session ends as after `trio.EndOfChannel`. None while nothing serves the
            channel.
        peer: the other end; a transport that knows more about it sets it before the channel is served.
        in_process: whether the peer is in the same process, so that nothing needs to be hidden from it.
        one_client: whether the process serves this peer only, and ends when it leaves, as on stdio.
        drain: seconds that requests which came before the end of the channel have to end, and be answered. 0 cancels them.
        account: set by the session while it serves the channel. A channel draws from it for a message that has arrived in part,
            if that may be large. None: nothing is counted.
        raised: receives the exceptions of the server's functions, for an in-process client that raises them; None without one.
        network: how the peer is connected, in the attributes of OpenTelemetry.
        is_busy: set by the session while it serves the channel; returns whether a request of the peer has no reply yet.
    """

    on_stop: Callable[[], None] | None = None
    stop_reading: Callable[[], None] | None = None
    peer: Peer = ANONYMOUS
    in_process: bool = False
    one_client: bool = False
    drain: float = 0.0
    account: Account | None = None
    raised: RaisedErrors | None = None
    network: Mapping[str, str | int] = NO_NETWORK
    is_busy: Callable[[], bool] = staticmethod(lambda: False)

    async def send_many(self, values: Sequence[Envelope[Sent]]) -> None:
        """Send several envelopes in order; override it where they can share one write. Raises what `send` raises.

        A cancel may leave the last ones unsent.

        Args:
            values: a list is the channel's from now on: it may remove what it has made into bytes, so that a large message is not
                there twice.
        """
        for value in values:
            await self.send(value)

    def send_nowait(self, value: Envelope[Sent]) -> bool:  # noqa: ARG002  the default sends nothing
        """Write the whole envelope without waiting and return True, or write nothing of it and return False.

        It never raises: if the channel has failed, the next `send` raises.
        """
        return False

    async def receive_many(self) -> Iterable[Envelope[Received]]:
        """Wait for a message; return it and all others that have already arrived.

        The caller iterates once, immediately: a channel may parse each message only when it is reached, so that a flood of
        messages uses no more memory than its bytes. Raises what `receive` raises.
        """
        return (await self.receive(),)

    @property
    def close_reason(self) -> str | None:
        """Why the peer ended the connection, as text for an error message; None if it has not, or the reason is unknown."""
        return None

    @property
    def ended_by_itself(self) -> bool:
        """Whether the peer is a process that has exited with a status, and was not killed. The default does not know."""
        return False

    @property
    def ended_unread(self) -> bool:
        """Whether the peer is a process that has ended before it read all that was sent. The default does not know."""
        return False


async def read_all(
    channel: MessageChannel,
    take: Callable[[Envelope[Received]], object],
    outbox: Outbox[Envelope],
    turn: LoopTurn | None = None,
) -> None:
    """Pass every message to `take` until the channel ends; wait after a message while answers fill `outbox`.

    Other tasks have a turn before and after a large message is passed on, after many small ones, and after expensive ones.

    Args:
        take: processes a message. Of a batch that it returns, what was not read yet is read before the next message.
        turn: shared with what else reads for the same service; None if this is alone.

    Raises:
        trio.BrokenResourceError, trio.ClosedResourceError: the channel broke, or this end was closed.
    """
    turn = turn or LoopTurn()
    try:
        while True:
            envelopes = await channel.receive_many()
            # Waiting for them was a turn of the others.
            cost = 0
            for envelope in envelopes:
                size = envelope.size
                cost += MESSAGE_COST + size
                if cost > TURN or turn.spent > TURN:
                    turn.spent += cost
                    await turn.pass_on()
                    # To process a message takes about as long as to parse it, which matters if it is large.
                    turn.spent += size
                    cost = 0
                taken = take(envelope)
                if turn.spent > TURN:
                    await turn.pass_on()
                    if isinstance(taken, session.batch.OpenBatch):
                        await taken.read_rest(turn)
                # Not kept while this waits: the next one may come in an hour, and this one may be large.
                del envelope, taken
            del envelopes
            # Else the requests of a peer that reads nothing would pile up as answers here.
            if outbox.is_full:
                await outbox.wait_for_reader()
    except trio.EndOfChannel:
        return


async def write_all(channel: MessageChannel, outbox: Outbox[Envelope]) -> None:
    """Send everything from the outbox until it is closed and empty.

    Raises:
        trio.BrokenResourceError: the channel broke; what was queued is lost.
    """
    while envelopes := await outbox.take():
        await channel.send_many(envelopes)
        # Not kept while this waits: the next ones may come in an hour, and these may be large.
        del envelopes


PlainChannel: TypeAlias = trio.abc.Channel[Envelope[Sent | Received]]
"""A channel with Trio's three methods and nothing more."""

AnyChannel: TypeAlias = MessageChannel | PlainChannel
"""What a transport may hand to a session."""


def as_message_channel(channel: AnyChannel) -> MessageChannel:
    """Return the channel itself if it is a `MessageChannel`, else one that adds the defaults to it."""
    return channel if isinstance(channel, MessageChannel) else _Adapter(channel)


class _Adapter(MessageChannel):
    """A plain channel with the default abilities."""

    def __init__(self, channel: PlainChannel) -> None:
        self._channel = channel

    async def send(self, value: Envelope[Sent]) -> None:
        await self._channel.send(value)

    async def receive(self) -> Envelope[Received]:
        # The element type of a plain channel is one for both directions; what arrives is never an array of answers.
        return cast("Envelope[Received]", await self._channel.receive())

    async def aclose(self) -> None:
        await self._channel.aclose()
