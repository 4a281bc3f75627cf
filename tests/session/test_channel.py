"""The channel interface: its defaults, and the adapter for a channel that has Trio's methods only."""

from __future__ import annotations

import pytest
import trio

from trio_mcp.protocol.jsonrpc import Message, Request
from trio_mcp.runtime import Outbox
from trio_mcp.session import Envelope, MessageChannel, as_message_channel


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
        self.sent: list[Message] = []

    async def send(self, value: Envelope) -> None:
        await trio.lowlevel.checkpoint()
        self.sent.append(value.message)

    async def receive(self) -> Envelope:
        raise trio.EndOfChannel

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


REQUESTS = [Request(number, "ping") for number in range(3)]


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
    channel.deliver_to(lambda _envelope: True, Outbox())
    await channel.send_many([Envelope(request) for request in REQUESTS])
    assert channel.sent == REQUESTS
