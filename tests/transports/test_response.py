"""How responses are framed, and what an application may not send."""

from __future__ import annotations

import sys
import time

import h11
import pytest
from naming import naming

from trio_mcp_transports.asgi.responses import WITHOUT_BODY, KnownResponse
from trio_mcp_transports.hypercorn.response import StreamWriter, UnsendableResponse, fields_bytes, whole_response

OWN = b"date: today\r\n"


def read(data: bytes, *, method: bytes = b"GET", is_over: bool = False) -> tuple[int, bytes, bool]:
    """What h11, as a client, reads: the status, the body, and whether the connection may be used again."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target=b"/", headers=[(b"host", b"x")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    if is_over:
        client.receive_data(b"")
    head, body = client.next_event(), b""
    assert isinstance(head, h11.Response)
    while isinstance(event := client.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage), event
    return head.status_code, body, client.their_state is h11.DONE


def whole(response: KnownResponse, *, closes: bool = False, is_head: bool = False) -> bytes:
    return b"".join(whole_response(response, OWN, closes=closes, is_head=is_head))


def streamed(*parts: bytes, closes: bool = False, takes_chunks: bool = True) -> bytes:
    writer = StreamWriter([(b"a", b"b")], OWN, closes=closes, takes_chunks=takes_chunks)
    last = len(parts) - 1
    return b"".join(b"".join(writer.framed(part, is_last=number == last)) for number, part in enumerate(parts))


@pytest.mark.parametrize("headers", [[], [(b"a", b"b")]])
@pytest.mark.parametrize("body", [b"", b"abc", b"x" * 100_000])
def test_a_whole_response_keeps_the_connection(headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    assert read(whole(KnownResponse(200, body, headers))) == (200, body, True)


def test_a_stream_is_sent_in_chunks() -> None:
    assert read(streamed(b"ab", b"", b"x" * 100_000, b"")) == (200, b"ab" + b"x" * 100_000, True)


def test_a_stream_ends_with_the_connection_for_a_client_that_knows_no_chunks() -> None:
    data = streamed(b"ab", b"c", takes_chunks=False)
    assert b"chunked" not in data
    assert b"connection: close" in data
    assert read(data, is_over=True)[:2] == (200, b"abc")


def test_a_response_to_head_has_no_body_whatever_its_length() -> None:
    data = whole(KnownResponse(200, b"abc"), is_head=True)
    assert b"content-length: 3" in data
    assert read(data, method=b"HEAD") == (200, b"", True)


@pytest.mark.parametrize("status", sorted(WITHOUT_BODY))
def test_a_status_without_a_body_promises_none(status: int) -> None:
    data = whole(KnownResponse(status, b"abc"))
    assert b"content-length" not in data
    assert read(data) == (status, b"", True)


@pytest.mark.parametrize("closes", [True, False])
def test_the_last_response_of_a_connection_has_the_close_header(closes: bool) -> None:
    for data in (whole(KnownResponse(200, b"a"), closes=closes), streamed(b"a", closes=closes)):
        assert data.count(b"connection: close") == closes


def test_a_response_that_says_itself_that_it_is_the_last_says_it_once() -> None:
    data = whole(KnownResponse(413, headers=[(b"Connection", b"Close")]), closes=True)
    assert data.lower().count(b"connection: close") == 1


def test_a_503_says_when_to_try_again_unless_it_does_so_itself() -> None:
    assert b"\r\nretry-after: 1\r\n" in whole(KnownResponse(503))
    assert whole(KnownResponse(503, headers=[(b"retry-after", b"7")])).count(b"retry-after") == 1


@pytest.mark.parametrize("status", [0, 100, 101, 199, 1000, -1])
def test_a_status_that_is_none_is_an_error(status: int) -> None:
    with pytest.raises(UnsendableResponse):
        whole(KnownResponse(status))


@pytest.mark.parametrize(
    "header",
    [
        (b"x", b"a\r\nset-cookie: b"),
        (b"x\r\ny", b"a"),
        (b"x y", b"a"),
        (b"", b"a"),
        (b"x", b"\0"),
        (b":status", b"200"),
    ],
)
def test_a_header_that_would_be_read_as_something_else_is_an_error(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(UnsendableResponse):
        whole(KnownResponse(200, headers=[header]))
    with pytest.raises(UnsendableResponse):
        StreamWriter([header], OWN, closes=False, takes_chunks=True)


@pytest.mark.parametrize("name", [b"set-cookie", b"location", b"mcp-session-id", b"x-own"])
def test_a_header_that_may_be_a_secret_is_forgotten_after_its_response(name: bytes) -> None:
    secret = b"%d" % time.time_ns()
    before = sys.getrefcount(secret)
    assert secret in whole(KnownResponse(200, headers=[(name, secret)]))
    assert sys.getrefcount(secret) == before


def test_no_error_shows_the_value_of_a_header() -> None:
    with pytest.raises(UnsendableResponse, match=naming("Set-Cookie")) as caught:
        fields_bytes([(b"Set-Cookie", b"session=SECRET\r\nx: y")])
    assert "SECRET" not in str(caught.value)
