"""Server-sent events: the HTML standard's rules, a limit, and the same events however the stream is cut."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from naming import naming

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.sse import (
    KEEP_ALIVE,
    SseDecoder,
    SseEvent,
    encode_event,
    encode_priming_event,
    encode_retry,
)

MIB = 1024 * 1024
BOM = b"\xef\xbb\xbf"
LINE_BREAK = re.compile("\r\n|\r|\n")

PIECES = "data event id retry x : 12 - é {} data:1\n"
streams = st.lists(
    st.sampled_from([*PIECES.split(" "), ": ", " ", "\n", "\n\n", "\r", "\r\n", "\x00", "\ufeff", "\u2028"]),
    max_size=40,
).map(lambda pieces: "".join(pieces).encode())
one_line = st.text(
    st.sampled_from("a: \u2028\u2029\x85\x0b\x0c\x1c") | st.characters(codec="utf-8", exclude_characters="\r\n\0")
)


def expected(stream: bytes) -> list[SseEvent]:
    """The standard's algorithm (9.2.6), word by word, over the whole stream at once."""
    *lines, _ = LINE_BREAK.split(stream.decode().removeprefix("\ufeff"))
    events: list[SseEvent] = []
    data, kind, id, retry = "", "", None, None
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                events.append(SseEvent(data.removesuffix("\n"), kind or "message", id, retry))
            data, kind, id, retry = "", "", None, None
        elif name == "data":
            data += value + "\n"
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            id = value
        elif name == "retry" and re.fullmatch("[0-9]+", value):
            retry = int(value)
    return events


def read(stream: bytes, max_event: int = MIB) -> list[SseEvent]:
    return SseDecoder(max_event).feed(stream)


def outcome(pieces: list[bytes], max_event: int) -> tuple[list[SseEvent], str | None]:
    decoder = SseDecoder(max_event)
    events: list[SseEvent] = []
    try:
        for piece in [*pieces, b""]:
            events += decoder.feed(piece)
    except RemoteProtocolError as error:
        return events, str(error)
    return events, None


def single_bytes(stream: bytes) -> list[bytes]:
    """Each byte, and an empty piece after it."""
    return [piece for byte in stream for piece in (bytes([byte]), b"")]


# Reading


@given(streams)
def test_events_are_those_of_the_standard(stream: bytes) -> None:
    assert expected(stream) == read(stream)


@given(streams, st.integers(1, 30) | st.just(MIB), st.lists(st.integers(0, 10**6), max_size=12))
def test_events_and_errors_are_the_same_however_the_stream_is_cut(stream: bytes, limit: int, cuts: list[int]) -> None:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    assert outcome([stream], limit) == outcome(pieces, limit) == outcome(single_bytes(stream), limit)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(stream: bytes) -> None:
    outcome([stream], 40)


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (BOM + b"data: a\n\n" + BOM + b"data: b\n\n", [SseEvent("a")]),
        (b"data: a\rdata: b\r\ndata: c\n\r\n\ndata: d\r\r", [SseEvent("a\nb\nc"), SseEvent("d")]),
        (b":\n:comment\n: data: x\n\n", []),
        (b": hi\ndata: a\n: there\ndata: b\n\n", [SseEvent("a\nb")]),
        (b"unknown: x\nDATA: x\nData: x\n data: x\ndata : x\n\n", []),
        (b"data\n\n", [SseEvent("")]),
        (b"data\ndata\n\n", [SseEvent("\n")]),
        (b"data:\n\n", [SseEvent("")]),
        (b"data:a\ndata: b\ndata:  c\n\n", [SseEvent("a\nb\n c")]),
        (b"data: a:b\n\n", [SseEvent("a:b")]),
        (b"event: ping\ndata: a\n\ndata: b\n\n", [SseEvent("a", "ping"), SseEvent("b")]),
        (b"event: ping\n\ndata: b\n\n", [SseEvent("b")]),
        (b"event\ndata: b\n\n", [SseEvent("b")]),
        (b"id: 1\ndata: a\n\ndata: b\n\n", [SseEvent("a", id="1"), SseEvent("b")]),
        (b"id: 1\nid: 2\0\ndata: a\n\n", [SseEvent("a", id="1")]),
        (b"id\ndata: a\n\n", [SseEvent("a", id="")]),
        (b"retry: 1500\ndata: a\n\n", [SseEvent("a", retry=1500)]),
        (b"\n\n\n\r\n\r\r", []),
        (b"data: a\n", []),
        (b"data: a\n\ndata: b", [SseEvent("a")]),
        (b"data: a\0\n\n", [SseEvent("a\0")]),
    ],
)
def test_a_stream_of_the_corpus(stream: bytes, events: list[SseEvent]) -> None:
    assert events == read(stream)
    assert events == outcome(single_bytes(stream), MIB)[0]


@pytest.mark.parametrize("junk", ["", "x", "-1", "+1", "1.5", "1e3", " 1", "1 ", "0x10", "\u0661", "\xb2", "9" * 5000])
def test_a_retry_that_is_no_number_is_ignored(junk: str) -> None:
    assert [SseEvent("a")] == read(f"retry: {junk}\ndata: a\n\n".encode())


def test_the_last_event_id_stays_until_an_event_changes_it() -> None:
    decoder = SseDecoder(MIB)
    decoder.feed(b"id: 1\ndata: a\n\ndata: b\n\n")
    assert decoder.last_event_id == "1"
    decoder.feed(b"id: 2\n")
    assert decoder.last_event_id == "1"
    decoder.feed(b"\n")
    assert decoder.last_event_id == "2"
    decoder.feed(b"id\n\n")
    assert decoder.last_event_id == ""


def test_a_retry_counts_even_without_an_event() -> None:
    decoder = SseDecoder(MIB)
    assert decoder.retry is None
    assert decoder.feed(b"retry: 0\n") == []
    assert decoder.retry == 0
    decoder.feed(b"\nretry: 25\nretry: x\n\ndata: a\n\n")
    assert decoder.retry == 25


@pytest.mark.parametrize("field", [b"data: \xff\n\n", b"event: \xff\ndata: a\n\n", b"id: \xff\n\n"])
def test_bytes_that_are_not_utf_8_are_refused_rather_than_altered(field: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=naming("UTF-8")) as caught:
        read(field)
    assert caught.value.code == -32700


@pytest.mark.parametrize(
    "stream",
    [
        b"data: 12345\n",
        b"data: 12345",
        b"data: 1\ndata: 2\n",
        b"data:1\ndata:2",
        b"data\n" * 100,
        b":" + b"x" * 11,
        b"x" * 11,
    ],
)
def test_an_event_over_the_limit_is_refused_naming_it(stream: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=naming("10 bytes", "max_event")) as caught:
        read(stream, 10)
    assert caught.value.code == -32600


def test_each_event_has_the_limit_to_itself_and_comments_are_free() -> None:
    assert [SseEvent("1234")] * 50 == read(b":comment\ndata: 1234\n\n" * 50, 10)
    assert [SseEvent("1")] == read(b":comment\n" * 50 + b"data: 1\n\n", 10)


def test_events_before_the_flaw_are_delivered_and_then_the_decoder_is_spent() -> None:
    decoder = SseDecoder(10)
    assert [SseEvent("1")] == decoder.feed(b"data: 1\n\ndata: 123456789\n\ndata: 2\n\n")
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="max_event"):
            decoder.feed(b"")


def test_a_large_event_one_byte_at_a_time_takes_linear_time() -> None:
    decoder = SseDecoder(MIB)
    feed = decoder.feed
    for byte in single_bytes(b"data: " + b"x" * 300_000 + b"\n"):
        feed(byte)
    assert [SseEvent("x" * 300_000)] == feed(b"\n")


def test_many_lines_of_one_event_take_linear_time() -> None:
    assert [SseEvent("\n".join(["x"] * 100_000))] == read(b"data: x\n" * 100_000 + b"\n")


def test_a_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match=naming("max_event", 0)):
        SseDecoder(0)


# Writing

one_line_bytes = one_line.map(str.encode)


@given(one_line_bytes, st.none() | one_line_bytes, one_line.filter(bool).map(str.encode))
def test_what_is_encoded_is_read_back(data: bytes, event_id: bytes | None, event: bytes) -> None:
    raw = encode_event(data, event_id, event=event)
    assert [SseEvent(data.decode(), event.decode(), None if event_id is None else event_id.decode())] == read(raw)
    assert read(raw) == outcome(single_bytes(raw), MIB)[0]


def test_an_event_on_the_wire() -> None:
    assert encode_event(b"{}") == b"event: message\ndata: {}\n\n"
    assert encode_event(b"{}", b"1-2") == b"event: message\nid: 1-2\ndata: {}\n\n"
    assert encode_event(b"/message", event=b"endpoint") == b"event: endpoint\ndata: /message\n\n"


def test_a_priming_event_has_an_id_and_no_data() -> None:
    assert encode_priming_event(b"3-0") == b"id: 3-0\ndata: \n\n"
    decoder = SseDecoder(MIB)
    assert decoder.feed(encode_priming_event(b"3-0")) == [SseEvent("", id="3-0")]
    assert decoder.last_event_id == "3-0"


@pytest.mark.parametrize(("seconds", "milliseconds"), [(0.0, 0), (0.25, 250), (1.0006, 1001), (3600, 3_600_000)])
def test_a_retry_is_in_whole_milliseconds(seconds: float, milliseconds: int) -> None:
    decoder = SseDecoder(MIB)
    assert decoder.feed(encode_retry(seconds)) == []
    assert decoder.retry == milliseconds


def test_a_keep_alive_is_no_event_and_breaks_none() -> None:
    assert [SseEvent("a"), SseEvent("b")] == read(encode_event(b"a") + KEEP_ALIVE * 3 + encode_event(b"b"))
