"""The fast path of a message (`hypercorn/websocket.py`) does what the slow one does, in the same order."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator

import h11
import pytest
import trio
from dear_reads import AT_ONCE, DEAR_READS, ORDER, READS, DearReads, dear_read, dear_uri
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn_peer import frame, upgrade
from hypothesis import example, given
from hypothesis import strategies as st
from peer import encoded, hello
from stage import Stage
from trio.testing import wait_all_tasks_blocked
from websocket_peer import PING, PONG, TEXT, RawPeer, raw, served
from wsproto.connection import Connection, ConnectionType
from wsproto.events import TextMessage

from trio_mcp.runtime import MemoryBudget
from trio_mcp.runtime.loop_turn import TURN, LoopTurn
from trio_mcp_transports.hypercorn import writes
from trio_mcp_transports.hypercorn.exchange import ConnectionFacts
from trio_mcp_transports.hypercorn.frames import between_messages, text_frame, whole_text_frame
from trio_mcp_transports.hypercorn.inbox import Inbox
from trio_mcp_transports.hypercorn.websocket import (
    BYTES_PER_FRAGMENT,
    FRAMES_IN_TURN,
    MAX_FRAGMENTS,
    WebSocketExchange,
)
from trio_mcp_transports.hypercorn.writes import Writer

LIMIT = 60.0

texts = st.text(max_size=200) | st.integers(min_value=0, max_value=70_000).map(lambda size: "é" * (size // 2))


def sent_by_client(text: str) -> bytes:
    return Connection(ConnectionType.CLIENT).send(TextMessage(data=text))


@given(texts)
@example("x" * 125)
@example("x" * 126)
@example("x" * 65_535)
@example("x" * 65_536)
def test_a_frame_is_what_wsproto_makes_of_it(text: str) -> None:
    assert text_frame(text.encode()) == Connection(ConnectionType.SERVER).send(TextMessage(data=text))


@given(st.lists(st.text(max_size=200) | st.just("x" * 300) | st.just("x" * 65_535), max_size=4))
def test_frames_that_are_whole_are_read_one_after_the_other(messages: list[str]) -> None:
    data = b"".join(map(sent_by_client, messages))
    start, read = 0, []
    while found := whole_text_frame(data, start):
        payload, start = found
        read.append(payload.decode())
    assert (read, start) == (messages, len(data))


@given(st.text(max_size=200), st.integers(min_value=0, max_value=300))
def test_a_frame_that_is_cut_short_is_left_alone(text: str, size: int) -> None:
    data = sent_by_client(text)
    assert whole_text_frame(data[: min(size, len(data) - 1)], 0) is None


WHOLE = frame(TEXT, b"{}")
SPECIAL = {
    "binary": frame(2, b"{}"),
    "ping": frame(PING),
    "first fragment": frame(TEXT, b"{}", first=0),
    "reserved bit": frame(TEXT, b"{}", first=0xC0),
    "no mask": b"\x81\x02{}",
    "not UTF-8": frame(TEXT, b"\xff"),
    "a surrogate": frame(TEXT, b"\xed\xa0\x80"),
    "long form of a short length": b"\x81\xfe\x00\x02\0\0\0\0{}",
    "eight bytes of length": b"\x81\xff" + (2).to_bytes(8, "big") + b"\0\0\0\0{}",
}


@pytest.mark.parametrize("data", SPECIAL.values(), ids=SPECIAL.keys())
def test_whatever_is_special_goes_the_long_way(data: bytes) -> None:
    assert whole_text_frame(WHOLE, 0) == (b"{}", len(WHOLE))
    assert whole_text_frame(data, 0) is None


def test_wsproto_still_tells_whether_it_is_between_messages() -> None:
    connection = Connection(ConnectionType.SERVER)
    for part, between in [
        (WHOLE, True),
        (WHOLE[:1], False),
        (WHOLE[1:], True),
        (frame(TEXT, b"{", first=0), False),
        (frame(PING), False),
        (frame(0, b"}"), True),
        (WHOLE + WHOLE[:-1], False),
    ]:
        connection.receive_data(part)
        list(connection.events())
        assert between_messages(connection) is between, part
    assert not between_messages(object())  # type: ignore[arg-type]


# with sockets


@pytest.fixture
async def peer() -> AsyncIterator[RawPeer]:
    async with served(Stage().server) as url, raw(url) as peer:
        yield peer


class Unwritten:
    """Where a WebSocket writes that no connection carries."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write_now(self, data: bytes) -> bool:
        self.written.append(data)
        return True

    async def write(self, _data: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def accept(self, _headers: object) -> None: ...

    async def end_response(self) -> None: ...


def websocket(inbox: Inbox | None = None, writer: Unwritten | None = None) -> WebSocketExchange:
    """A WebSocket that no connection carries."""
    http = h11.Connection(h11.SERVER)
    http.receive_data(upgrade())
    facts = ConnectionFacts(None, Config(), WorkerContext(None), {}, None, None, False)  # type: ignore[arg-type]
    account, unwritten = MemoryBudget().open(), writer or Unwritten()
    parts = (facts, http.next_event(), inbox or Inbox(9, account), unwritten, unwritten, account)
    return WebSocketExchange(*parts)  # type: ignore[arg-type]


async def accepted(writer: Unwritten | None = None) -> WebSocketExchange:
    exchange = websocket(writer=writer)
    await exchange.send({"type": "websocket.accept"})
    return exchange


def ping(number: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}).encode()


async def test_a_call_that_runs_alone_goes_the_short_way_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    take, write_now = WebSocketExchange.take, Writer.write_now
    left: list[bytes] = []
    written: list[bool] = []

    def counting_take(self: WebSocketExchange, data: bytes) -> bytes:
        left.append(take(self, data))
        return left[-1]

    def counting_write(self: Writer, data: bytes) -> bool:
        written.append(write_now(self, data))
        return written[-1]

    monkeypatch.setattr(WebSocketExchange, "take", counting_take)
    monkeypatch.setattr(Writer, "write_now", counting_write)
    async with served(Stage().server) as url, raw(url) as peer:
        for number in range(5):
            assert await peer.text(await peer.leg("echo", {"text": str(number)})) == str(number)
    assert (left[1:], written) == ([b""] * 4, [True] * 5)  # the first may come before anybody waits for it


async def test_a_burst_is_answered_in_order_whichever_way_each_message_goes(peer: RawPeer) -> None:
    burst = b""
    for number in range(0, 400, 4):
        half = ping(number + 2)
        burst += frame(TEXT, ping(number)) + frame(TEXT, ping(number + 1))
        burst += frame(TEXT, half[:9], first=0) + frame(PING, b"between") + frame(0, half[9:])
        burst += frame(TEXT, ping(number + 3))
    await peer.client.send(burst)
    heard, pongs = [], 0
    while len(heard) < 400:
        first, payload = await peer.client.frame()
        if first == 0x80 | PONG:
            pongs += 1
        else:
            heard.append(json.loads(payload)["id"])
    assert heard == list(range(400))
    assert pongs == 100


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 64])
async def test_how_the_bytes_were_cut_changes_nothing(peer: RawPeer, size: int) -> None:
    data = b"".join(frame(TEXT, ping(number)) for number in range(8))
    for start in range(0, len(data), size):
        await peer.client.send(data[start : start + size])
        await trio.lowlevel.checkpoint()
    assert [(await peer.receive())["id"] for _ in range(8)] == list(range(8))


async def test_an_answer_that_the_kernel_takes_in_part_is_finished_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, peer: RawPeer
) -> None:
    def stingy(fd: int, data: bytes) -> int:
        return write(fd, data[:3])

    write = os.write
    assert await peer.text(await peer.leg("echo", {"text": "before"})) == "before"
    monkeypatch.setattr(writes.os, "write", stingy)
    for number in range(50):
        assert await peer.text(await peer.leg("echo", {"text": f"{number} " * number})) == f"{number} " * number
    calls = [await peer.leg("echo", {"text": f"{number} " * 100}) for number in range(20)]
    heard = {(message := await peer.receive())["id"]: message["result"]["content"][0]["text"] for _ in calls}
    assert heard == {call: f"{number} " * 100 for number, call in enumerate(calls)}


async def test_nothing_is_sent_the_short_way_before_the_upgrade_or_after_the_close() -> None:
    writer = Unwritten()
    assert not websocket(writer=writer).send_nowait(b"{}")
    exchange = await accepted(writer)
    assert exchange.send_nowait(b"{}")
    await exchange.receive(frame(8, b""))
    assert not exchange.send_nowait(b"{}")
    assert writer.written == [b"\x81\x02{}"]


async def test_what_looks_like_a_frame_inside_a_message_is_a_part_of_that_message(peer: RawPeer) -> None:
    inner = frame(TEXT, ping(1))
    head = frame(TEXT, inner)[: -len(inner)]
    await peer.client.send(frame(PING, b"first") + head)
    assert await peer.client.frame() == (0x80 | PONG, b"first")  # so that the rest is a separate read
    await peer.client.send(inner)
    assert (await peer.closed())[0] == 1007  # as text it is no UTF-8


async def test_nothing_overtakes_what_is_queued() -> None:
    inbox, heard = Inbox(9, MemoryBudget().open()), list[object]()
    stream = websocket(inbox)
    stream.on_message = lambda data: heard.append(data) or True  # type: ignore[func-returns-value]

    async def receive() -> None:
        for _ in range(2):
            heard.append((await inbox.receive())["type"])

    assert not stream.offer(b"nobody waits")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        assert stream.offer(b"first")
        await inbox.put({"type": "websocket.receive", "text": "second", "bytes": None})
        assert not stream.offer(b"third")  # the second is still queued
        await wait_all_tasks_blocked()
        assert stream.offer(b"fourth")
        await inbox.put({"type": "websocket.disconnect", "code": 1000, "reason": ""})
        assert not stream.offer(b"too late")
    assert heard == [b"first", "websocket.receive", b"fourth", "websocket.disconnect"]


async def turns_of_others(stream: WebSocketExchange, data: bytes) -> int:
    """Hand data to a WebSocket; return how often another task had a turn meanwhile."""
    turns = 0

    async def bystander() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander)
        await trio.lowlevel.checkpoint()
        await stream.receive(data)
        nursery.cancel_scope.cancel()
    return turns


@pytest.mark.parametrize("each", [frame(0, b"", first=0), frame(0, b"x" * 30, first=0), frame(10)], ids=len)
async def test_others_have_a_turn_while_frames_are_read(each: bytes) -> None:
    stream = await accepted()
    count = 7 * FRAMES_IN_TURN
    assert await turns_of_others(stream, frame(TEXT, b"{", first=0) + each * count) >= 6


async def test_frames_are_taken_at_once_in_bounded_numbers() -> None:
    stream = websocket(Waiting(9, MemoryBudget().open()))
    stream.on_message = lambda _data: True
    assert taken(stream, WHOLE * (FRAMES_IN_TURN + 3)) == FRAMES_IN_TURN


async def test_no_frame_is_taken_in_a_turn_that_is_over() -> None:
    stream = websocket(Waiting(9, MemoryBudget().open()))
    turn = stream.turn = LoopTurn()

    def dear(_data: bytes) -> bool:
        turn.spent += TURN // 2
        return True

    stream.on_message = dear
    assert taken(stream, WHOLE * 9) == 3
    assert taken(stream, WHOLE * 9) == 0


async def test_others_have_a_turn_between_small_messages_whose_uris_are_dear_to_compare() -> None:
    dear = DearReads()
    async with served(dear.server) as url, raw(url) as peer:
        await peer.send({"id": 0, "method": "initialize", "params": hello("2025-06-18", {})})
        await peer.result(0)
        await peer.notify("notifications/initialized")
        async with dear.watched():
            await peer.client.send(b"".join(frame(TEXT, encoded(read)) for read in DEAR_READS))
            assert {(await peer.receive())["id"] for _ in DEAR_READS} == set(range(1, READS + 1))
    assert dear.compared == ORDER
    assert dear.most_at_once <= AT_ONCE


async def test_others_have_a_turn_between_the_messages_of_a_batch_that_are_dear() -> None:
    dear = DearReads()
    async with served(dear.server) as url, raw(url) as peer:
        await peer.send({"id": 0, "method": "initialize", "params": hello("2025-03-26", {})})
        await peer.result(0)
        await peer.notify("notifications/initialized")
        # Short enough for the fast path: it ends at 64 KiB.
        reads = [{**dear_read(number), "params": {"uri": dear_uri(number, 900)}} for number in range(1, READS + 1)]
        async with dear.watched():
            await peer.client.send(frame(TEXT, encoded(*reads, batch=True)))
            assert set(await peer.answers()) == set(range(1, READS + 1))
    assert dear.compared == ORDER
    assert dear.most_at_once <= TURN // 1_800 + 1


class Waiting(Inbox):
    """An inbox for which its application always waits."""

    app_is_waiting = True


def taken(stream: WebSocketExchange, data: bytes) -> int:
    return (len(data) - len(stream.take(data))) // len(WHOLE)


async def test_a_burst_of_more_frames_than_are_taken_at_once_is_answered_in_order(peer: RawPeer) -> None:
    count = 3 * FRAMES_IN_TURN
    assert await peer.text(await peer.leg("echo", {"text": "before"})) == "before"
    await peer.client.send(b"".join(frame(TEXT, ping(number)) for number in range(count)))
    assert [(await peer.receive())["id"] for _ in range(count)] == list(range(count))


# fragments


async def test_a_message_of_too_many_fragments_closes_the_connection_with_the_limit(peer: RawPeer) -> None:
    await peer.client.send(frame(TEXT, b"{", first=0) + frame(0, b"", first=0) * (MAX_FRAGMENTS + 1))
    code, reason = await peer.closed()
    assert code == 1008
    assert str(MAX_FRAGMENTS) in reason


async def test_fragments_count_for_one_message_and_those_that_carry_bytes_are_not_limited(peer: RawPeer) -> None:
    text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "y" * 40_000}}).encode()
    size = BYTES_PER_FRAGMENT
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    assert len(parts) > MAX_FRAGMENTS
    for _ in range(2):
        head, *rest = parts
        await peer.client.send(frame(TEXT, head, first=0) + b"".join(frame(0, part, first=0) for part in rest))
        await peer.client.send(frame(0))
        assert (await peer.receive())["id"] == 1
    empty = frame(TEXT, ping(2)[:9], first=0) + frame(0, b"", first=0) * (MAX_FRAGMENTS - 2) + frame(0, ping(2)[9:])
    for _ in range(2):
        await peer.client.send(empty)
        assert (await peer.receive())["id"] == 2
