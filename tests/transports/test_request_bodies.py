"""Reading the body of a request: from our own connection, and from an ASGI server."""

from __future__ import annotations

from typing import Any

import h11
import pytest

from trio_mcp.session import MemoryBudget
from trio_mcp_transports.asgi.access import HttpRejection
from trio_mcp_transports.asgi.adapter import AsgiBody
from trio_mcp_transports.asgi.requests import Body, Request, read_body
from trio_mcp_transports.hypercorn.body import MAX_DISCARDED_BYTES, ChunkedBody, SentBody
from trio_mcp_transports.hypercorn.request_head import RequestHead

LIMIT = 1000


class Wire:
    """A connection on which these bytes come, and then its end."""

    def __init__(self, *data: bytes) -> None:
        self._data = list(data)
        self.behind = b""
        self.continued = 0
        self.refused: list[int] = []

    async def receive_more(self) -> bytes:
        return self._data.pop(0) if self._data else b""

    def put_back(self, data: bytes) -> None:
        self.behind += data

    async def send_continue(self) -> None:
        self.continued += 1

    def log_refusal(self, status: int) -> None:
        self.refused.append(status)


def sized(wire: Wire, length: int, **more: Any) -> SentBody:
    return SentBody(wire, RequestHead("POST", "/", {}, 0, length, **more))


def chunked(wire: Wire, begun: bytes = b"") -> ChunkedBody:
    parser = h11.Connection(h11.SERVER)
    parser.receive_data(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + begun)
    parser.next_event()
    return ChunkedBody(wire, RequestHead("POST", "/", {}, 0, None), parser)


async def read(body: Body, limit: int = LIMIT, **headers: str) -> bytes:
    request = Request("POST", "/", {name.replace("_", "-"): value for name, value in headers.items()}, body)
    with MemoryBudget().open() as account:
        return await read_body(request, limit, 5.0, account)


async def status_of(body: Body, **headers: str) -> int:
    with pytest.raises(HttpRejection) as caught:
        await read(body, **headers)
    return caught.value.status


@pytest.mark.parametrize("pieces", [[b"abcdef"], [b"a", b"bcdef"], [b"abc", b"def"]])
async def test_a_body_of_known_length_ends_where_the_next_request_begins(pieces: list[bytes]) -> None:
    wire = Wire(*pieces[:-1], pieces[-1] + b"GET")
    body = sized(wire, 6)
    assert await read(body) == b"abcdef"
    assert wire.behind == b"GET"
    assert await body.receive() == b""
    assert body.left == 0


@pytest.mark.parametrize("cut", range(1, 20))
async def test_a_body_in_chunks_ends_where_the_next_request_begins(cut: int) -> None:
    data = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nGET"
    wire = Wire(data[cut:])
    body = chunked(wire, data[:cut])
    assert await read(body) == b"abcde"
    assert wire.behind == b"GET"
    assert await body.receive() == b""


async def test_a_body_that_ends_too_early_is_400() -> None:
    assert await status_of(sized(Wire(b"abc"), 6)) == 400
    assert await status_of(chunked(Wire(b"3\r\nab"))) == 400


async def test_chunks_that_are_none_are_400_and_noted() -> None:
    wire = Wire(b"nonsense\r\n")
    assert await status_of(chunked(wire)) == 400
    assert wire.refused == [400]


async def test_a_body_with_a_content_length_over_the_limit_is_413_before_it_is_read() -> None:
    wire = Wire(b"x" * 2000)
    assert await status_of(sized(wire, 2000), content_length="2000") == 413
    assert await wire.receive_more() != b""
    assert await status_of(sized(Wire(b"x" * 2000), 2000)) == 413
    assert await status_of(Body(b"x" * 2000)) == 413


@pytest.mark.parametrize("expects", [True, False])
async def test_a_client_that_waits_for_it_gets_one_100_continue(expects: bool) -> None:
    wire = Wire(b"abc", b"def")
    assert await read(sized(wire, 6, expects_continue=expects)) == b"abcdef"
    assert wire.continued == expects


def test_the_rest_of_a_short_body_may_be_discarded() -> None:
    assert sized(Wire(), MAX_DISCARDED_BYTES).may_be_discarded
    assert not sized(Wire(), MAX_DISCARDED_BYTES + 1).may_be_discarded
    assert not chunked(Wire()).may_be_discarded


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def asgi(*events: dict[str, Any]) -> AsgiBody:
    left = list(events)

    async def receive() -> dict[str, Any]:
        return left.pop(0)

    return AsgiBody(receive)


async def test_the_events_of_an_asgi_server_are_parts_of_a_body() -> None:
    assert await read(asgi(part(b"", more=True), part(b"ab", more=True), part(b"c"))) == b"abc"
    assert await read(asgi(part(b"ab", more=True), part(b""))) == b"ab"
    assert await read(asgi(part(b""))) == b""
    assert await status_of(asgi(part(b"a", more=True), {"type": "http.disconnect"})) == 400
