"""The ways in which a hostile HTTP server can say the same messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

import httpx2
import trio

Dress = Callable[[Sequence[bytes]], httpx2.Response]

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}


def plain(messages: Sequence[bytes], status: int = 200, **headers: str) -> httpx2.Response:
    """One body of JSON, whatever it is."""
    named = {**JSON, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return httpx2.Response(status if messages else 202, headers=named, content=b"".join(messages[-1:]))


def stream(
    messages: Sequence[bytes], *, ending: str = "end", first: bytes = b"", number: bool = False
) -> httpx2.Response:
    """A stream of events, which ends, stays open or breaks off."""
    if not messages:
        return httpx2.Response(202)

    async def body() -> AsyncIterator[bytes]:
        yield first
        for index, message in enumerate(messages):
            lines = [b"data: " + line for line in message.splitlines()] or [b"data:"]
            yield b"\n".join([*([b"id: %d" % index] if number else []), *lines, b"", b""])
        if ending == "open":
            await trio.sleep_forever()
        if ending == "break":
            raise httpx2.ReadError("connection reset")

    return httpx2.Response(200, headers=EVENTS, content=body())


def without_answer(messages: Sequence[bytes]) -> httpx2.Response:
    """A stream that can be resumed and ends before its answer."""
    return stream([*messages[:-1], b""] if messages else [], number=True)


def standalone(request: httpx2.Request) -> httpx2.Response:
    """Answer a GET or a DELETE: there is no stream for what belongs to no request."""
    return httpx2.Response(405 if request.method == "GET" else 200)


STATUSES = (201, 204, 301, 307, 400, 401, 403, 404, 405, 409, 413, 429, 500, 502, 503)

DRESSES: tuple[Dress, ...] = (
    plain,
    stream,
    partial(stream, number=True),
    partial(stream, ending="open"),
    partial(stream, ending="break"),
    partial(stream, ending="break", number=True),
    partial(stream, first=b"retry: 99999999999999999999\n\n", number=True),
    partial(stream, first=b"\xef\xbb\xbf:comment\r\nid\x00: 1\r\nevent: endpoint\ndata: x\n\n\xff\xfe\n"),
    partial(stream, first=b"id: " + b"x" * 100_000 + b"\n\n", ending="break"),
    partial(stream, first=b"data: " + b"x" * 1_100_000),
    without_answer,
    partial(plain, mcp_session_id="S1"),
    partial(plain, mcp_session_id="\x01 x"),
    partial(plain, content_type="text/html; charset=nonsense"),
    partial(plain, content_type="application/json; charset=utf-16"),
    partial(plain, content_type=""),
    partial(plain, content_encoding="gzip"),
    partial(plain, content_length="5"),
    partial(plain, location="http://127.0.0.1:1/", status=308),
    *(partial(plain, status=status) for status in STATUSES),
)
