"""The line channel, over streams in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import trio
import trio.testing
from naming import unnamed
from peer import arrived, is_malformed, json_of, message_of
from wire_terms import SERVER_BUSY

from trio_mcp.session import Envelope, MemoryBudget
from trio_mcp.types import RequestId
from trio_mcp_transports.hypercorn.config import guarded_config
from trio_mcp_transports.stdio import LineChannel
from trio_mcp_transports.stdio.channel import BUFFER_STEP

PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
DONE = b'{"jsonrpc":"2.0","method":"done"}'


class Wire:
    """A channel and the far ends of its two streams."""

    def __init__(self, *, max_line: int = 1000, write_deadline: float = 30) -> None:
        self.to_channel, received = trio.testing.memory_stream_one_way_pair()
        sent, self.from_channel = trio.testing.memory_stream_one_way_pair()
        self.sent = sent
        self.channel = LineChannel(received, sent, max_line=max_line, write_deadline=write_deadline)

    async def feed(self, *chunks: bytes, end: bool = True) -> None:
        for chunk in chunks:
            await self.to_channel.send_all(chunk)
        if end:
            await self.to_channel.aclose()


class BlockedWire:
    """A channel whose peer takes bytes only when asked to: every write waits for that."""

    def __init__(self, write_deadline: float = 30) -> None:
        sent, self.from_channel = trio.testing.lockstep_stream_one_way_pair()
        _, received = trio.testing.memory_stream_one_way_pair()
        self.channel = LineChannel(received, sent, write_deadline=write_deadline)


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def blocked() -> BlockedWire:
    return BlockedWire()


async def everything(channel: LineChannel) -> list[Envelope]:
    return [envelope async for envelope in channel]


def methods(envelopes: Sequence[Envelope]) -> list[str]:
    return ["malformed" if is_malformed(each.message) else json_of(each.message)["method"] for each in envelopes]


NAN = message_of({"method": "n"})._replace(params={"x": math.nan})


def note(method: str) -> Envelope:
    return Envelope(message_of({"method": method}))


# What is buffered


async def received_in_parts(wire: Wire, budget: MemoryBudget, *parts: bytes) -> tuple[list[Envelope], list[int]]:
    """What the channel receives, and what was drawn after each part."""
    wire.channel.account = account = budget.open()
    drawn: list[int] = []

    async def feed() -> None:
        for part in parts:
            await wire.to_channel.send_all(part)
            await trio.testing.wait_all_tasks_blocked()
            drawn.append(account.drawn)
        await wire.to_channel.aclose()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(feed)
        return await everything(wire.channel), drawn


async def test_an_unfinished_line_draws_from_the_memory_budget_in_steps_until_it_ends() -> None:
    wire, budget = Wire(max_line=10 * BUFFER_STEP), MemoryBudget(100 * BUFFER_STEP)
    parts = (b"x" * (BUFFER_STEP - 1), b"x", b"x" * 2 * BUFFER_STEP, b"x\n" + PING, b"\n")
    received, drawn = await received_in_parts(wire, budget, *parts)
    assert methods(received) == ["malformed", "ping"]
    assert drawn == [0, BUFFER_STEP, 3 * BUFFER_STEP, 0, 0]


async def test_a_line_for_which_the_memory_budget_has_no_room_is_rejected_and_the_next_is_served() -> None:
    wire, budget = Wire(max_line=100 * BUFFER_STEP), MemoryBudget(4 * BUFFER_STEP)
    head, more = b'{"jsonrpc":"2.0","id":7,"method":"x","params":"', b"x" * BUFFER_STEP
    received, drawn = await received_in_parts(wire, budget, head, *[more] * 5, b'"}\n' + PING + b"\n")
    rejected, *rest = received
    assert is_malformed(rejected.message)
    assert (rejected.message.error.code, rejected.message.error.request_id) == (SERVER_BUSY, 7)
    assert unnamed(str(rejected.message.error), "memory budget") == []
    assert (methods(rest), max(drawn) < 4 * BUFFER_STEP, drawn[-1]) == (["ping"], True, 0)


def test_what_an_http_connection_draws_covers_the_head_of_a_request() -> None:
    assert guarded_config().h11_max_incomplete_size < 32 * 1024


# Receiving


async def test_a_line_is_a_message_without_a_peer(wire: Wire) -> None:
    await wire.feed(PING + b"\n")
    assert arrived(PING) == await wire.channel.receive()


@pytest.mark.parametrize(
    ("chunks", "received"),
    [
        pytest.param([PING + b"\n" + DONE + b"\n" + PING + b"\n"], ["ping", "done", "ping"], id="one chunk"),
        pytest.param([bytes([byte]) for byte in PING + b"\n" + DONE + b"\n"], ["ping", "done"], id="byte by byte"),
        pytest.param([PING + b"\r\n\r\n\n" + DONE + b"\n"], ["ping", "done"], id="returns and blank lines"),
        *(
            pytest.param([garbage + b"\n" + DONE + b"\n"], ["malformed", "done"], id=repr(garbage))
            for garbage in (b"hello", b"\xff\xfe", b"{", b"[]", b'{"jsonrpc":"2.0"}', b'{"a":1,"a":2}')
        ),
    ],
)
async def test_lines_arrive_in_order_whatever_their_chunks_and_what_is_no_message_is_malformed(
    wire: Wire, chunks: list[bytes], received: list[str]
) -> None:
    await wire.feed(*chunks)
    assert methods(await everything(wire.channel)) == received


async def test_a_line_separator_inside_a_string_does_not_end_the_line(wire: Wire) -> None:
    await wire.feed('{"jsonrpc":"2.0","method":"note","params":{"text":"a\u2028b\u0085c"}}\n'.encode())
    message = json_of((await wire.channel.receive()).message)
    assert message["params"] == {"text": "a\u2028b\u0085c"}


async def test_a_line_over_the_limit_is_refused_and_the_next_line_is_served() -> None:
    wire = Wire(max_line=100)
    await wire.feed(b"x" * 60, b"x" * 60, b"x" * 60 + b"\n", DONE + b"\n")
    refused, served = await everything(wire.channel)
    assert is_malformed(refused.message)
    assert refused.message.error.code == -32700
    assert "100" in str(refused.message.error)
    assert arrived(DONE) == served


@pytest.mark.parametrize("cut", range(len(PING) + 1))
async def test_an_unterminated_rest_is_delivered_only_if_it_is_whole(wire: Wire, cut: int) -> None:
    await wire.feed(DONE + b"\n" + PING[:cut])
    assert methods(await everything(wire.channel)) == ["done", *["ping"] * (cut == len(PING))]


async def test_the_end_stays_the_end(wire: Wire) -> None:
    await wire.feed()
    for _ in range(2):
        with pytest.raises(trio.EndOfChannel):
            await wire.channel.receive()


async def test_a_cancelled_receive_loses_nothing(wire: Wire) -> None:
    await wire.feed(PING + b"\n" + DONE[:10], end=False)
    await wire.channel.receive()
    with trio.CancelScope() as scope:
        scope.cancel()
        await wire.channel.receive()
    await wire.feed(DONE[10:] + b"\n")
    assert methods(await everything(wire.channel)) == ["done"]


async def test_a_message_that_has_arrived_is_not_lost_to_a_cancel(wire: Wire) -> None:
    await wire.feed(PING + b"\n" + DONE + b"\n")
    await wire.channel.receive()
    with trio.CancelScope() as scope:
        scope.cancel()
        await wire.channel.receive()
    assert scope.cancelled_caught
    assert methods(await everything(wire.channel)) == ["done"]


# Sending


async def test_a_message_is_sent_as_one_line(wire: Wire) -> None:
    await wire.channel.send(Envelope(message_of({"id": 7, "result": {"text": "a\nb"}})))
    assert await wire.from_channel.receive_some() == b'{"jsonrpc":"2.0","id":7,"result":{"text":"a\\nb"}}\n'


async def test_several_messages_go_out_in_order_in_one_write(blocked: BlockedWire) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(blocked.channel.send_many, [note("a"), note("b"), note("c")])
        await trio.testing.wait_all_tasks_blocked()
        lines = (await blocked.from_channel.receive_some()).splitlines()
    assert lines == [b'{"jsonrpc":"2.0","method":"%b"}' % name for name in (b"a", b"b", b"c")]


async def test_a_send_that_was_cancelled_before_it_began_leaves_the_channel_as_it_was(wire: Wire) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await wire.channel.send(note("a"))
    await wire.channel.send(note("b"))
    assert await wire.from_channel.receive_some() == b'{"jsonrpc":"2.0","method":"b"}\n'


async def test_a_send_that_was_cancelled_halfway_breaks_the_channel(blocked: BlockedWire) -> None:
    with trio.move_on_after(1) as scope:
        await blocked.channel.send(note("a"))
    assert scope.cancelled_caught
    with pytest.raises(trio.BrokenResourceError, match="cut short"):
        await blocked.channel.send(note("b"))


async def test_a_peer_that_does_not_read_breaks_the_channel_after_the_deadline() -> None:
    wire = BlockedWire(write_deadline=5)
    for _ in range(2):
        with pytest.raises(trio.BrokenResourceError, match="did not read for 5 s"):
            await wire.channel.send(note("a"))
    assert trio.current_time() == pytest.approx(5)


async def test_a_peer_that_is_gone_breaks_send_and_what_it_had_sent_is_still_received(wire: Wire) -> None:
    await wire.feed(DONE + b"\n")
    await wire.from_channel.aclose()
    wire.sent.send_all_hook = _broken
    for _ in range(2):
        with pytest.raises(trio.BrokenResourceError, match="closed its end"):
            await wire.channel.send(note("a"))
    assert methods(await everything(wire.channel)) == ["done"]


async def _broken() -> None:
    raise trio.BrokenResourceError


async def test_two_tasks_cannot_send_at_once_and_the_first_goes_on(blocked: BlockedWire) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(blocked.channel.send, note("a"))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.BusyResourceError):
            await blocked.channel.send(note("b"))
        assert await blocked.from_channel.receive_some() == b'{"jsonrpc":"2.0","method":"a"}\n'


async def test_breaking_wakes_a_blocked_send_with_the_reason(blocked: BlockedWire) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def sender() -> None:
            with pytest.raises(trio.BrokenResourceError, match="it died"):
                await blocked.channel.send(note("a"))

        await trio.testing.wait_all_tasks_blocked()
        blocked.channel.break_sending("it died")
        blocked.channel.break_sending("a later reason")
    with pytest.raises(trio.BrokenResourceError, match="it died"):
        await blocked.channel.send(note("b"))


@pytest.mark.parametrize("id", [1, "one"])
async def test_what_was_received_as_malformed_cannot_be_sent(wire: Wire, id: RequestId) -> None:
    await wire.feed(b"garbage\n")
    envelope = await wire.channel.receive()
    with pytest.raises(AssertionError):  # a type checker rejects it too
        await wire.channel.send(envelope)
    await wire.channel.send(Envelope(message_of({"id": id, "result": {}})))


async def test_a_value_that_is_not_json_is_refused_and_the_channel_stays_whole(wire: Wire) -> None:
    with pytest.raises(ValueError):
        await wire.channel.send_many([note("a"), Envelope(NAN)])
    await wire.channel.send(note("b"))
    assert await wire.from_channel.receive_some() == b'{"jsonrpc":"2.0","method":"b"}\n'


# Closing


async def test_a_closed_channel_neither_sends_nor_receives(wire: Wire) -> None:
    await wire.feed(PING + b"\n" + DONE + b"\n")
    await wire.channel.receive()
    await wire.channel.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await wire.channel.receive()
    with pytest.raises(trio.ClosedResourceError):
        await wire.channel.send(note("a"))


async def test_closing_wakes_a_blocked_receive(wire: Wire) -> None:
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def blocked() -> None:
            with pytest.raises(trio.ClosedResourceError):
                await wire.channel.receive()

        await trio.testing.wait_all_tasks_blocked()
        await wire.channel.aclose()


async def test_a_cancelled_close_has_closed_both_streams(wire: Wire) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await wire.channel.aclose()
    with pytest.raises(trio.ClosedResourceError):
        await wire.sent.send_all(b"x")
    assert await wire.from_channel.receive_some() == b""


async def test_the_repr_shows_the_state(wire: Wire) -> None:
    assert repr(wire.channel) == "<LineChannel: open>"
    wire.channel.break_sending("it died")
    assert repr(wire.channel) == "<LineChannel: broken: it died>"
    await wire.channel.aclose()
    assert repr(wire.channel) == "<LineChannel: closed>"
