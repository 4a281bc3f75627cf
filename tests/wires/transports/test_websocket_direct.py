"""What a WebSocket of our own server does with frames (`hypercorn/websocket.py`, `frames.py`), and in which order."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
import trio
from expensive_reads import EXPENSIVE_READS, ORDER, READS, ExpensiveReads, at_once, expensive_read, expensive_uri
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn_peer import GET, Exchanges, Steps, answer, echo, frame, get, running, serving, upgrade
from hypothesis import example, given, strategies as st
from peer import LIMITS, encoded
from stage import Stage
from websocket_peer import CLOSE, PING, PONG, TEXT, RawPeer, raw, served
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, TextMessage
from wsproto.frame_protocol import Frame, FrameDecoder, Opcode, ParseFailed

from trio_mcp.runtime import Outbox
from trio_mcp.session import ANONYMOUS, MemoryBudget
from trio_mcp.session.channel import TURN, read_all
from trio_mcp_transports.asgi.requests import Request
from trio_mcp_transports.asgi.responses import Binary, MessageSocket, Response, Upgrade
from trio_mcp_transports.http import asgi_app
from trio_mcp_transports.hypercorn import response
from trio_mcp_transports.hypercorn.config import guarded_config
from trio_mcp_transports.hypercorn.connections import ConnectionFacts
from trio_mcp_transports.hypercorn.frames import (
    BYTES_PER_FRAGMENT,
    MAX_FRAGMENTS,
    PREPAID_READ,
    MessageReader,
    read_close,
    text_frame,
)
from trio_mcp_transports.hypercorn.response import Writer
from trio_mcp_transports.hypercorn.websocket import FRAMES_IN_TURN, WebSocketExchange
from trio_mcp_transports.websocket.endpoint import WebSocketChannel

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


# One reader of frames


def reader(limit: int = 1 << 20, budget: MemoryBudget | None = None) -> MessageReader:
    return MessageReader(limit, (budget or MemoryBudget()).open())


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
def test_whatever_is_special_is_left_to_wsproto(data: bytes) -> None:
    read = reader()
    read.feed(WHOLE + data)
    assert read.next_text() == b"{}"
    assert read.next_text() is None
    assert read.next_text() is None


def test_text_over_the_limit_is_left_to_wsproto_and_refused_behind_it() -> None:
    read = reader(limit=2)
    read.feed(WHOLE + frame(TEXT, b"{ }"))
    assert (read.next_text(), read.next_text()) == (b"{}", None)
    with pytest.raises(ParseFailed) as failure:
        read.next()
    assert failure.value.code == 1009


def test_what_is_whole_is_read_in_place_again_after_something_special() -> None:
    read = reader()
    for part, between in [
        (WHOLE, True),
        (WHOLE[:1], False),
        (WHOLE[1:], True),
        (frame(TEXT, b"{", first=0), False),
        (frame(PING), False),
        (frame(0, b"}"), True),
        (WHOLE + WHOLE[:-1], False),
        (WHOLE[-1:], True),
    ]:
        read.feed(part)
        while read.next() is not None:
            pass
        assert read.is_between is between, part
    read.feed(WHOLE)
    assert read.next_text() == b"{}"


def said_to_wsproto(pieces: Sequence[bytes]) -> list[Any]:
    """What wsproto makes of the bytes of a client: its messages and pings, and the code of the first close frame or error."""
    connection, found, parts = Connection(ConnectionType.SERVER), list[Any](), list[Any]()
    for piece in pieces:
        connection.receive_data(piece)
        for event in connection.events():
            if isinstance(event, Message):
                parts.append(event.data)
                if event.message_finished and isinstance(event, TextMessage):
                    found.append("".join(parts).encode())
                elif event.message_finished and isinstance(event, BytesMessage):
                    found.append(Binary(b"".join(parts)))
                parts = [] if event.message_finished else parts
            elif isinstance(event, Ping):
                found.append(("ping", bytes(event.payload)))
            elif isinstance(event, CloseConnection):
                return [*found, ("close", int(event.code), event.reason)]
    return found


def said_to_reader(pieces: Sequence[bytes]) -> list[Any]:
    """The same, as our reader has it."""
    read, found = reader(), list[Any]()
    for piece in pieces:
        read.feed(piece)
        try:
            while (news := read.next()) is not None:
                if not isinstance(news, Frame):
                    found.append(news)
                elif news.opcode is Opcode.PING:
                    found.append(("ping", news.payload))
                elif news.opcode is Opcode.CLOSE:
                    code, reason = read_close(bytes(news.payload))  # type: ignore[arg-type]
                    return [*found, ("close", int(code), reason)]
        except ParseFailed as error:
            return [*found, ("close", int(error.code), str(error))]
    return found


masks = st.binary(min_size=4, max_size=4)


@st.composite
def client_frames(draw: Any) -> bytes:
    """A frame of a client, valid or nearly so."""
    opcode = draw(st.sampled_from([0, 1, 1, 1, 2, 3, 8, 9, 10]))
    first = draw(st.sampled_from([0x80, 0x80, 0x80, 0, 0xC0, 0x90])) | opcode
    payload = draw(
        st.sampled_from([b"", b"{}", "é€😀".encode(), b"\xff", b"\xed\xa0\x80", b"x" * 126]) | st.binary(max_size=130)
    )
    if opcode == 8:
        code = draw(st.sampled_from([1000, 1001, 1005, 1006, 1015, 999, 2999, 3000, 4999, 5000]))
        payload = draw(
            st.sampled_from([b"", b"\x03", code.to_bytes(2, "big"), code.to_bytes(2, "big") + payload[:100]])
        )
    if opcode == 1 and draw(st.booleans()):
        return bytes(Connection(ConnectionType.CLIENT).send(TextMessage(draw(texts))))
    size, key = len(payload), draw(masks)
    shortest = 0 if size < 126 else 1
    form = draw(st.sampled_from([shortest, shortest, shortest, 1, 2]))
    length = [bytes([size & 0x7F]), b"\x7e" + size.to_bytes(2, "big"), b"\x7f" + size.to_bytes(8, "big")][form]
    masked = 0x80 if draw(st.integers(0, 9)) else 0
    payload = bytes(byte ^ key[at % 4] for at, byte in enumerate(payload)) if masked else payload
    return bytes([first, length[0] | masked]) + length[1:] + (key if masked else b"") + payload


@given(st.lists(client_frames(), max_size=6), st.lists(st.integers(0, 500), max_size=6))
@example([sent_by_client("é"), frame(TEXT, b"{", first=0), frame(PING, b"p"), frame(0, b"}"), sent_by_client("x")], [])
@example([frame(CLOSE, b"\x03\xe8bye"), WHOLE], [])
@example([frame(CLOSE, b"\x03\xe8\xff")], [])
def test_the_reader_finds_what_wsproto_finds_however_the_bytes_were_cut(frames: list[bytes], cuts: list[int]) -> None:
    data = b"".join(frames)
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[start:end] for start, end in pairwise(places)]
    assert said_to_reader(pieces) == said_to_wsproto(pieces)


def test_what_is_kept_of_a_message_and_a_large_read_are_counted_until_they_are_used() -> None:
    budget = MemoryBudget()
    read = reader(budget=budget)
    half = frame(TEXT, b"x" * PREPAID_READ, first=0)
    read.feed(half)
    assert budget.drawn > PREPAID_READ
    while read.next() is not None:
        pass
    assert PREPAID_READ < budget.drawn < 2 * PREPAID_READ
    read.feed(frame(0, b"x"))
    while not isinstance(read.next(), bytes):
        pass
    assert read.next() is None
    assert budget.drawn == 0
    read.feed(WHOLE * PREPAID_READ)
    assert budget.drawn > 3 * PREPAID_READ
    assert list(iter(read.next, None)) == [b"{}"] * PREPAID_READ
    assert budget.drawn == 0


# with sockets


@pytest.fixture
async def peer() -> AsyncIterator[RawPeer]:
    async with served(Stage().server) as url, raw(url) as peer:
        yield peer


class Unwritten:
    """A connection that carries nothing, and what its WebSocket writes."""

    def __init__(self) -> None:
        self.facts = ConnectionFacts(None, Config(), WorkerContext(None), None, None, False)  # type: ignore[arg-type]
        self.account = MemoryBudget().open()
        self.writer = self
        self.written: list[bytes] = []

    def write_now(self, data: bytes) -> bool:
        self.written.append(data)
        return True

    async def write(self, _data: bytes) -> None:
        await trio.lowlevel.checkpoint()

    def end_websocket(self) -> None: ...


def accepted(*data: bytes, owner: Unwritten | None = None) -> WebSocketExchange:
    """A WebSocket that no connection carries, which is to receive these bytes, read by read, and then the end."""
    reads = iter(data)

    async def receive() -> bytes:
        return next(reads, b"")

    exchange = WebSocketExchange(owner or Unwritten(), receive, echo, None)  # type: ignore[arg-type]
    exchange.open(1 << 20, lambda: None)
    return exchange


def ping(number: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}).encode()


async def test_a_call_that_runs_alone_is_read_in_place_and_its_answer_written_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_now, written, decoded = Writer.write_now, list[bool](), list[bytes]()

    def counting_write(self: Writer, data: bytes) -> bool:
        written.append(write_now(self, data))
        return written[-1]

    monkeypatch.setattr(FrameDecoder, "receive_bytes", lambda _self, data: decoded.append(data))
    monkeypatch.setattr(Writer, "write_now", counting_write)
    async with served(Stage().server) as url, raw(url) as peer:
        for number in range(5):
            assert await peer.text(await peer.leg("echo", {"text": str(number)})) == str(number)
        assert (decoded, written) == ([], [True] * 5)


async def test_a_message_is_one_step_of_the_task_that_reads(peer: RawPeer) -> None:
    await peer.text(await peer.leg("echo", {"text": "before"}))
    with Steps() as steps:
        for number in range(10):
            assert await peer.text(await peer.leg("echo", {"text": str(number)})) == str(number)
    assert steps.count == 10


async def test_a_burst_is_answered_in_order_whichever_way_each_message_goes(peer: RawPeer) -> None:
    burst = b""
    for number in range(0, 400, 4):
        half = ping(number + 2)
        burst += frame(TEXT, ping(number)) + frame(TEXT, ping(number + 1))
        burst += frame(TEXT, half[:9], first=0) + frame(PING, b"between") + frame(0, half[9:])
        burst += frame(TEXT, ping(number + 3))
    await peer.client.send(burst)
    heard = [await peer.client.frame() for _ in range(500)]
    assert [json.loads(payload)["id"] for first, payload in heard if first != 0x80 | PONG] == list(range(400))


async def test_an_answer_that_the_kernel_takes_in_part_is_finished_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, peer: RawPeer
) -> None:
    def stingy(fd: int, data: bytes) -> int:
        return write(fd, data[:3])

    write = os.write
    assert await peer.text(await peer.leg("echo", {"text": "before"})) == "before"
    monkeypatch.setattr(response.os, "write", stingy)
    for number in range(50):
        assert await peer.text(await peer.leg("echo", {"text": f"{number} " * number})) == f"{number} " * number
    calls = [await peer.leg("echo", {"text": f"{number} " * 100}) for number in range(20)]
    heard = {(message := await peer.receive())["id"]: message["result"]["content"][0]["text"] for _ in calls}
    assert heard == {call: f"{number} " * 100 for number, call in enumerate(calls)}


async def test_nothing_is_sent_at_once_after_the_close() -> None:
    owner = Unwritten()
    exchange = accepted(frame(CLOSE, b""), owner=owner)
    assert exchange.send_nowait(b"{}")
    await exchange.receive_many()
    assert not exchange.send_nowait(b"{}")
    assert owner.written == [b"\x81\x02{}"]


async def test_the_messages_of_a_read_that_were_not_taken_are_the_next_ones() -> None:
    stream = accepted(WHOLE + frame(TEXT, b"[1]") + frame(TEXT, b"[2]"), frame(TEXT, b"[3]"))
    assert next(iter(await stream.receive_many())) == b"{}"
    first, second = await stream.receive_many()
    assert (first, second) == (b"[1]", b"[2]")
    assert list(await stream.receive_many()) == [b"[3]"]
    assert list(await stream.receive_many()) == []


async def turns_of_others(reading: Any) -> int:
    """Run this; return how often another task had a turn meanwhile."""
    turns = 0

    async def bystander() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander)
        await trio.lowlevel.checkpoint()
        await reading()
        nursery.cancel_scope.cancel()
    return turns


@pytest.mark.parametrize("each", [frame(0, b"", first=0), frame(0, b"x" * 30, first=0), frame(10)], ids=len)
async def test_others_have_a_turn_while_frames_are_read(each: bytes) -> None:
    stream = accepted(frame(TEXT, b"{", first=0) + each * (7 * FRAMES_IN_TURN))
    assert await turns_of_others(stream.receive_many) >= 6


@pytest.mark.parametrize("each", [WHOLE, WHOLE[:1] + b"\x80" + bytes(4)], ids=["read in place", "empty"])
async def test_others_have_a_turn_while_messages_are_passed_to_the_session(each: bytes) -> None:
    count, taken = 7 * TURN // 512, list[object]()
    stream = accepted(each * count)
    channel = WebSocketChannel(stream, ANONYMOUS, LIMITS)

    async def read() -> None:
        await read_all(channel, taken.append, Outbox())

    assert await turns_of_others(read) >= 6
    assert len(taken) == count


async def test_others_have_a_turn_between_small_messages_whose_uris_are_expensive_to_compare() -> None:
    reads = ExpensiveReads()
    async with served(reads.server) as url, raw(url) as peer:
        await peer.initialize("2025-06-18", {})
        async with reads.watched():
            await peer.client.send(b"".join(frame(TEXT, encoded(read)) for read in EXPENSIVE_READS))
            assert {(await peer.receive())["id"] for _ in EXPENSIVE_READS} == set(range(1, READS + 1))
    assert reads.compared == ORDER
    assert reads.most_at_once <= at_once()


async def test_others_have_a_turn_between_expensive_messages_of_a_batch() -> None:
    reads = ExpensiveReads()
    async with served(reads.server) as url, raw(url) as peer:
        await peer.initialize("2025-03-26", {})
        # In one frame that is read in place, which ends at 64 KiB.
        messages = [
            {**expensive_read(number), "params": {"uri": expensive_uri(number, 900)}} for number in range(1, READS + 1)
        ]
        async with reads.watched():
            await peer.client.send(frame(TEXT, encoded(*messages, batch=True)))
            assert set(await peer.answers()) == set(range(1, READS + 1))
    assert reads.compared == ORDER
    assert reads.most_at_once <= at_once(900)


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


# who reads, and who is cut


def upgrade_of(peer: RawPeer, *headers: str) -> bytes:
    return upgrade("sec-websocket-protocol: mcp", *headers, path="/mcp", host=peer.authority)


async def test_an_upgrade_that_was_sent_before_an_answer_is_a_websocket_after_it() -> None:
    async with served(Stage().server) as url, raw(url, connected=False) as peer:
        await peer.client.send(get("/nothing", host=peer.authority) + upgrade_of(peer))
        assert (await peer.client.response())[0] == 404
        assert (await peer.client.head())[0] == 101
        assert await peer.text(await peer.leg("echo", {"text": "pipelined"})) == "pipelined"


async def test_an_upgrade_that_was_sent_while_a_response_is_open_waits_for_its_end() -> None:
    exchanges = Exchanges()

    async def handle(request: Request) -> Response:
        return await (exchanges(request) if request.websocket is None else answer(request))

    async with running(serving(handle), guarded_config()) as server, server.client() as client:
        await client.send(GET)
        first = await exchanges.next()
        await client.send(upgrade())
        first.reply()
        assert (await client.response())[2] == b"ok"
        assert (await client.head())[0] == 101
        await client.send(WHOLE)
        assert await client.frame() == (0x80 | TEXT, b"{}")


async def test_a_client_is_not_cut_for_a_silence_of_an_application_that_does_not_read() -> None:
    opened, read = trio.Event(), list[object]()

    async def serve(socket: MessageSocket) -> None:
        await opened.wait()
        while messages := await socket.receive_many():
            read.extend(messages)

    async def app(_request: Request) -> Response:
        return Upgrade(None, serve, lambda: None)

    async with running(serving(app), guarded_config(websocket_ping_interval=0.05)) as server:
        async with server.websocket() as client:
            await client.send(WHOLE * 500)
            for _ in range(5):
                assert await client.frame() == (0x80 | PING, b"")
            opened.set()
            await client.send(frame(CLOSE))
            while (await client.frame())[0] != 0x80 | CLOSE:
                pass
    assert read == [b"{}"] * 500


async def test_a_middleware_sees_the_messages_of_a_websocket() -> None:
    seen, app = list[str](), asgi_app(Stage().server)

    async def middleware(scope: Any, receive: Any, send: Any) -> None:
        async def seeing_receive() -> Any:
            message = await receive()
            seen.append(message["type"])
            return message

        async def seeing_send(message: Any) -> None:
            seen.append(message["type"])
            await send(message)

        await app(scope, seeing_receive, seeing_send)

    async with running(middleware, guarded_config()) as server:
        async with raw(f"ws://127.0.0.1:{server.port}/mcp") as peer:
            seen.clear()
            assert await peer.text(await peer.leg("echo", {"text": "seen"})) == "seen"
            assert seen == ["websocket.receive", "websocket.send"]


async def test_frames_that_come_with_the_upgrade_are_refused_before_the_application_is_asked() -> None:
    asked = list[object]()

    async def authenticate(headers: Any) -> str:
        asked.append(headers)
        return "ada"

    async with served(Stage().server, authenticate=authenticate) as url, raw(url, connected=False) as peer:
        await peer.client.send(upgrade_of(peer) + WHOLE)
        assert (await peer.client.head())[0] == 400
        assert await peer.client.rest() == b""
    assert not asked


@pytest.mark.parametrize("framing", ["content-length: 4", "transfer-encoding: chunked"])
async def test_an_upgrade_with_a_body_is_refused(framing: str) -> None:
    async with served(Stage().server) as url, raw(url, connected=False) as peer:
        await peer.client.send(upgrade_of(peer, framing))
        assert (await peer.client.response())[0] == 400
