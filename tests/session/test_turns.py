"""Small but expensive messages do not block the event loop: what each costs counts, and not its bytes alone."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio
from expensive_reads import EXPENSIVE_READS, ORDER, READS, ExpensiveReads, at_once
from peer import Json, arrived, encoded, hello, json_of

from trio_mcp.session import Envelope, MessageChannel, Received, serve_channel

HANDSHAKE = [
    {"id": 0, "method": "initialize", "params": hello("2025-03-26", {})},
    {"method": "notifications/initialized"},
]


class Everything(MessageChannel):
    """Gives its session all messages at once, and ends after a number of answers."""

    def __init__(self, messages: Iterable[Json | list[Json]], answers: int) -> None:
        self._messages: list[Json | list[Json]] = [*HANDSHAKE, *messages]
        self._answers = answers + 1
        self.answered = set[object]()
        self._all_answered = trio.Event()

    async def send(self, value: Envelope) -> None:
        await trio.lowlevel.checkpoint()
        message = json_of(value.message)
        for answer in message if isinstance(message, list) else [message]:
            assert "result" in answer, answer
            self.answered.add(answer["id"])
        if len(self.answered) == self._answers:
            self._all_answered.set()

    async def receive_many(self) -> Iterable[Envelope[Received]]:
        await trio.lowlevel.checkpoint()
        if not self._messages:
            await self._all_answered.wait()
            raise trio.EndOfChannel
        messages, self._messages = self._messages, []
        return (arrived(bytes_of(message)) for message in messages)

    async def receive(self) -> Envelope[Received]:
        raise AssertionError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def bytes_of(message: Json | list[Json]) -> bytes:
    return encoded(*message, batch=True) if isinstance(message, list) else encoded(message)


PING: Json = {"id": "p", "method": "ping"}


@pytest.mark.parametrize(
    "messages", [EXPENSIVE_READS, [EXPENSIVE_READS], [EXPENSIVE_READS, PING]], ids=["one by one", "a batch", "more"]
)
async def test_others_have_a_turn_between_requests_whose_uris_are_expensive_to_compare(
    messages: list[Json | list[Json]],
) -> None:
    reads = ExpensiveReads()
    channel = Everything(messages, READS + messages.count(PING))
    with trio.fail_after(30):
        async with reads.server.open_service() as service, reads.watched():
            await serve_channel(service, channel)
    assert reads.compared == ORDER
    assert reads.most_at_once <= at_once()
