"""An answer that is complete before the request's body came keeps the connection, or says that it is closed."""

from __future__ import annotations

import pytest
from hypercorn_peer import reply, running, serving

from trio_mcp_transports.asgi.requests import Request
from trio_mcp_transports.asgi.responses import KnownResponse, Response
from trio_mcp_transports.hypercorn.body import MAX_DISCARDED_BYTES
from trio_mcp_transports.hypercorn.config import ConnectionLimits, guarded_config

REFUSED = (405, b"no")


def post(*headers: str) -> bytes:
    return "\r\n".join(["POST / HTTP/1.1", "host: x", *headers, "", ""]).encode()


async def refuse(_request: Request) -> Response:
    return reply(b"no", 405)


@pytest.mark.parametrize("size", [0, 5, MAX_DISCARDED_BYTES])
async def test_a_short_rest_of_a_body_is_discarded_and_the_next_request_answered(size: int) -> None:
    async with running(serving(refuse)) as server, server.client() as client:
        for _ in range(3):
            assert await client.ask(post(f"content-length: {size}")) == REFUSED
            await client.send(bytes(size))


async def test_a_request_that_was_pipelined_behind_a_discarded_body_is_answered() -> None:
    async with running(serving(refuse)) as server, server.client() as client:
        assert await client.ask(post("content-length: 5")) == REFUSED
        assert await client.ask(b"12345" + post("content-length: 0")) == REFUSED


@pytest.mark.parametrize("framing", [f"content-length: {MAX_DISCARDED_BYTES + 1}", "transfer-encoding: chunked"])
async def test_an_answer_says_that_its_connection_is_closed_where_the_rest_may_be_long(framing: str) -> None:
    async with running(serving(refuse)) as server, server.client() as client:
        await client.send(post(framing))
        status, headers, _body = await client.response()
        assert (status, headers["connection"]) == (405, "close")
        await client.rest()


async def test_an_answer_that_sets_the_header_itself_sets_it_once() -> None:
    async def too_large(_request: Request) -> Response:
        return KnownResponse(413, headers=[(b"connection", b"close")])

    async with running(serving(too_large)) as server, server.client() as client:
        await client.send(post("transfer-encoding: chunked"))
        assert (await client.until(b"\r\n\r\n")).lower().count(b"connection: close") == 1


@pytest.mark.parametrize("sent", [b"", b"1"])
async def test_a_rest_that_does_not_come_costs_its_connection_in_the_time_of_a_head(sent: bytes) -> None:
    config = guarded_config(limits=ConnectionLimits(header_timeout=0.2))
    async with running(serving(refuse), config) as server, server.client() as client:
        assert await client.ask(post("content-length: 5")) == REFUSED
        await client.send(sent)
        assert await client.rest() == b""
