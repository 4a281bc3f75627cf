"""Lines: only a newline ends one, a limit cannot stop the next one, and a cut line is never delivered."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st
from naming import naming, unnamed

from trio_mcp.protocol.framing import EXCERPT, Line, LineDecoder, LineTooLong, LongLineEnded

MIB = 1024 * 1024
ENDED = LongLineEnded(LineTooLong(5))

streams = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"bb", b" ", b"\t", b"{}", b"\xe2\x80\xa8", b"0123456789"]),
    max_size=40,
).map(b"".join)


def expected(stream: bytes, limit: int) -> list[Line]:
    *ended, rest = stream.split(b"\n")
    lines: list[Line] = []
    for line in (line.removesuffix(b"\r") for line in ended):
        if len(line) > limit:
            lines += [LineTooLong(limit), LongLineEnded(LineTooLong(limit))]
        elif line.strip(b" \t\r"):
            lines.append(line)
    if len(rest.removesuffix(b"\r")) > limit or len(rest) > limit + 1:
        lines.append(LineTooLong(limit))
    return lines


def chunks(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@given(streams, st.lists(st.integers(0, 10**6), max_size=12), st.integers(1, 12))
def test_lines_are_the_same_however_the_stream_is_cut(stream: bytes, cuts: list[int], limit: int) -> None:
    for pieces in (chunks(stream, cuts), [bytes([byte]) for byte in stream]):
        decoder = LineDecoder(limit)
        assert expected(stream, limit) == [line for piece in pieces for line in decoder.feed(piece)]


def test_a_line_cut_by_the_end_of_the_stream_is_never_delivered() -> None:
    line = b'{"jsonrpc":"2.0","method":"go"}'
    decoder = LineDecoder(100)
    for end in range(len(line) + 1):
        decoder = LineDecoder(100)
        assert decoder.feed(line[:end]) == []
        assert end == decoder.buffered
    assert [line] == decoder.feed(b"\n")
    assert decoder.buffered == 0


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b"a\r\nb\r\r\nc\n", [b"a", b"b\r", b"c"]),
        (b"\n\r\n  \n\t\r\n\r\r\na\n\n", [b"a"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbf\r\nb\xef\xbb\xbf\n", [b"\xef\xbb\xbfa", b"b\xef\xbb\xbf"]),
        (b"12345\n67890\r\n", [b"12345", b"67890"]),
        (b"a\n123456\nb\n", [b"a", LineTooLong(5), ENDED, b"b"]),
    ],
    ids=[
        "a carriage return is dropped once",
        "blank lines are skipped",
        "a byte order mark alone is no text, and one before a text stays",
        "just the limit",
        "over the limit",
    ],
)
def test_a_stream_is_these_lines(stream: bytes, lines: list[Line]) -> None:
    assert LineDecoder(5).feed(stream) == lines


@pytest.mark.parametrize(
    "kept", [b"\r", b"\x0b", b"\x0c", b"\x1c", b"\x85", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"]
)
def test_only_a_newline_ends_a_line(kept: bytes) -> None:
    assert [b"a" + kept + b"b"] == LineDecoder(10).feed(b"a" + kept + b"b\n")


def test_a_line_over_the_limit_is_reported_before_its_end_and_at_its_end() -> None:
    decoder = LineDecoder(5)
    assert [LineTooLong(5)] == decoder.feed(b"123456")
    assert "skipping" in repr(decoder)
    assert decoder.feed(b"7" * 100) == []
    assert decoder.feed(b"\nb\n") == [ENDED, b"b"]


def test_the_error_for_a_long_line_names_the_limit() -> None:
    error = LineTooLong(5).error()
    assert (error.code, error.request_id) == (-32700, None)
    assert unnamed(str(error), "5 bytes", "max_line") == []


def test_a_limit_must_be_positive() -> None:
    with pytest.raises(ValueError, match=naming("max_line", 0)):
        LineDecoder(0)


def test_a_line_without_end_takes_no_more_memory_than_the_limit_and_decoding_goes_on() -> None:
    decoder = LineDecoder(MIB)
    chunk = b"x" * 65536
    tracemalloc.start()
    lines = [line for _ in range(1600) for line in decoder.feed(chunk)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [LineTooLong(MIB)] == lines
    assert peak < 2 * MIB
    assert decoder.feed(b"\nnext\n") == [LongLineEnded(LineTooLong(MIB)), b"next"]


def test_a_long_line_one_byte_at_a_time_takes_linear_time() -> None:
    decoder = LineDecoder(MIB)
    feed = decoder.feed
    for _ in range(MIB // 2):
        feed(b"x")
    assert feed(b"\n") == [b"x" * (MIB // 2)]


def test_many_lines_in_one_chunk_take_linear_time() -> None:
    assert LineDecoder(10).feed(b"x\n\n" * 200_000) == [b"x"] * 200_000


def test_a_decoder_shows_its_state() -> None:
    decoder = LineDecoder(10)
    decoder.feed(b"abc")
    assert repr(decoder) == "<LineDecoder: 3 bytes buffered, max_line=10>"


@given(st.integers(1, 5000), st.lists(st.integers(0, 10**6), max_size=12))
def test_the_start_and_the_end_of_a_long_line_are_kept(length: int, cuts: list[int]) -> None:
    line = b"%05d" * 1000 % tuple(range(1000))
    line = line[: 10 + length]
    decoder = LineDecoder(10)
    too_long, ended = [each for chunk in chunks(line + b"\n", cuts) for each in decoder.feed(chunk)]
    assert isinstance(too_long, LineTooLong)
    assert isinstance(ended, LongLineEnded)
    assert too_long.head
    assert line.startswith(too_long.head)
    assert ended.tail == line[-EXCERPT:].removesuffix(b"\r")


@pytest.mark.parametrize("line", [b'{"a":{}}', b' {"a":1}\r'])
def test_a_whole_object_at_the_end_of_the_stream_needs_no_line_end(line: bytes) -> None:
    decoder = LineDecoder(100)
    assert decoder.feed(b"{}\n" + line) == [b"{}"]
    assert decoder.finish() == line.strip()
    assert decoder.finish() is None


@pytest.mark.parametrize("line", [b"", b'{"a":{}', b'{"a":"}', b"{}}", b"[{}]", b"print }"])
def test_what_was_cut_off_by_the_end_of_the_stream_is_no_line(line: bytes) -> None:
    decoder = LineDecoder(100)
    decoder.feed(line)
    assert decoder.finish() is None
