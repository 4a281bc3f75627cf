"""The channel interface: its defaults, and the adapter for a channel that has Trio's methods only."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio
from peer import message_of

from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope, MessageChannel, Received, Sent, as_message_channel
from trio_mcp.session.channel import MESSAGE_COST, TURN, read_all


class Plain(trio.abc.Channel[Envelope]):
    """Sends to itself."""

    def __init__(self) -> None:
        self._sends, self._receives = trio.open_memory_channel[Envelope](10)

    async def send(self, value: Envelope) -> None:
        await self._sends.send(value)

    async def receive(self) -> Envelope:
        return await self._receives.receive()

    async def aclose(self) -> None:
        await self._sends.aclose()


class Minimal(MessageChannel):
    """Overrides what is abstract and nothing more."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []

    async def send(self, value: Envelope) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(value.message)

    async def receive(self) -> Envelope:
        raise trio.EndOfChannel

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


REQUESTS = [message_of({"id": number, "method": "ping"}) for number in range(3)]


def test_a_message_channel_is_used_as_it_is() -> None:
    channel = Minimal()
    assert as_message_channel(channel) is channel


async def test_a_plain_channel_gets_the_defaults_and_keeps_its_own_methods() -> None:
    plain = Plain()
    channel = as_message_channel(plain)
    await channel.send_many([Envelope(request) for request in REQUESTS])
    assert [(await channel.receive()).message for _ in REQUESTS] == REQUESTS
    await channel.aclose()
    with pytest.raises(trio.EndOfChannel):
        await channel.receive()


async def test_the_defaults_promise_nothing() -> None:
    channel = Minimal()
    assert not channel.send_nowait(Envelope(REQUESTS[0]))
    assert channel.close_reason is None
    assert channel.on_stop is None
    assert channel.stop_reading is None
    await channel.send_many([Envelope(request) for request in REQUESTS])
    assert channel.sent == REQUESTS


class Arrived(Minimal):
    """Messages that have all arrived; what happens to them is noted, and each turn that another task has."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.sizes = list(sizes)
        self.events: list[str] = []

    async def receive_many(self) -> Iterable[Envelope[Received]]:
        await trio.lowlevel.checkpoint()
        if not self.sizes:
            raise trio.EndOfChannel
        sizes, self.sizes = self.sizes, []
        return map(self._parsed, sizes)

    def _parsed(self, size: int) -> Envelope[Received]:
        self.events.append("parsed")
        return Envelope(REQUESTS[0], size=size)

    async def events_of_reading(self) -> list[str]:
        """Read everything while another task is always ready to run."""

        async def bystander() -> None:
            while True:
                await trio.lowlevel.checkpoint()
                self.events.append("turn")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(bystander)
            await trio.lowlevel.checkpoint()
            await read_all(self, lambda _envelope: self.events.append("taken"), Outbox())
            nursery.cancel_scope.cancel()
        return self.events[self.events.index("parsed") : len(self.events) - self.events[::-1].index("taken")]


async def test_others_have_a_turn_while_many_small_messages_are_read() -> None:
    messages = 10 * TURN // MESSAGE_COST
    events = await Arrived(*[0] * messages).events_of_reading()
    assert events.count("taken") == messages
    assert events.count("turn") >= 8


async def test_others_have_a_turn_between_the_parsing_and_the_validation_of_a_large_message() -> None:
    parsed, *turns, taken = await Arrived(TURN).events_of_reading()
    assert (parsed, set(turns), taken) == ("parsed", {"turn"}, "taken")


async def test_a_cancel_loses_no_message_that_has_arrived() -> None:
    taken = 0

    def take(_envelope: Envelope[Received]) -> None:
        nonlocal taken
        taken += 1
        reading.cancel()

    with trio.CancelScope() as reading:
        await read_all(Arrived(TURN, TURN, TURN), take, Outbox())
    assert reading.cancelled_caught
    assert taken == 3
