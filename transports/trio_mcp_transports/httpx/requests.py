"""Requests on httpx2: the client that makes them, the bodies of their responses, and their errors in words."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

import httpx2
import trio

from trio_mcp.groups import cause_chain
from trio_mcp.runtime.pieces import MANY_PIECES, PiecesInTurns
from trio_mcp.session.transport import HeaderSource

from ..header_source import HeadersFailed, current_headers
from ..tls import certificate_hint, is_plain_text
from .limits import ClientLimits

EVENT_STREAM: Final = "text/event-stream"
PROTOCOL_HEADERS: Final = frozenset({"accept", "content-type", "last-event-id"})
"""Headers that requests have of their own, apart from those of MCP, whose names begin so."""


CODINGS: Final = ("gzip", "deflate")
"""How a body may be compressed. A few bytes that were compressed twice, or in another way, could be gigabytes of nothing."""
LARGE_PIECE: Final = 64 * 1024
"""Bytes of a piece after which other tasks run: those that were compressed come one after another, without a wait."""

FROM_TLS: Final = ("without sending a response", "illegal request line")
"""What the HTTP library says of a server that closes the connection, and of one that sends bytes that are not text."""

NOT_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout)
"""Errors after which the server knows nothing of the request."""


def open_http(limits: ClientLimits, headers: HeaderSource | None) -> httpx2.AsyncClient:
    """What makes the requests: as many connections as it takes, since a stream holds one for as long as it lasts."""
    # No limit for reads: a stream is silent for as long as nothing happens. Those who wait for an answer have limits of
    # their own.
    timeout = httpx2.Timeout(limits.connect, read=None, pool=None)
    connections = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    auth = HeaderFunction(headers, limits.connect) if callable(headers) else None
    given = {} if callable(headers) else dict(headers or {})
    return httpx2.AsyncClient(
        timeout=timeout,
        limits=connections,
        auth=auth,
        headers={"accept-encoding": ", ".join(CODINGS), **given},
        event_hooks={"response": [check_coding]},
    )


async def check_coding(response: httpx2.Response) -> None:
    """Raise `httpx2.DecodingError` if a body is compressed more than once, or otherwise than by `CODINGS`."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity", *CODINGS):
        why = f"the answer is compressed ({coding:.40}); a client reads {' or '.join(CODINGS)}, once"
        raise httpx2.DecodingError(why, request=response.request)


class HeaderFunction(httpx2.Auth):
    """Adds to each request the headers that a function returns at that moment.

    Args:
        seconds: how long the function may take.
    """

    def __init__(self, source: HeaderSource, seconds: float) -> None:
        self._source = source
        self._seconds = seconds

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request with its headers; what the protocol says in a header is not replaced."""
        headers: Mapping[str, str] | None = None
        try:
            with trio.move_on_after(self._seconds):
                headers = await current_headers(self._source)
        except HeadersFailed as error:
            # One of `NOT_SENT`.
            raise httpx2.ConnectError(str(error), request=request) from error
        if headers is None:
            why = f"the function headers= did not return within {self._seconds:g} seconds"
            raise httpx2.ConnectTimeout(why, request=request)
        given = {name: value for name, value in headers.items() if not self._is_set(name.lower(), request)}
        request.headers.update(given)
        yield request

    @staticmethod
    def _is_set(name: str, request: httpx2.Request) -> bool:
        """Return whether a header is one of the protocol, and the request has it."""
        return (name in PROTOCOL_HEADERS or name.startswith("mcp-")) and name in request.headers


async def read_body(response: httpx2.Response, limit: int) -> bytes:
    """The body of a response.

    Raises:
        httpx2.RequestError: it broke off, has more than `limit` bytes, or many pieces of a few bytes.
    """
    chunks: list[bytes] = []
    size = 0
    async with open_body(response) as pieces:
        async for piece in pieces:
            size += len(piece)
            if size > limit:
                raise httpx2.ReadError(f"the answer has more than {limit} bytes, which is the limit")
            if pieces.are_too_small:
                raise httpx2.ReadError(f"the answer comes in more than {MANY_PIECES} pieces of a few bytes")
            chunks.append(piece)
    return b"".join(chunks)


@asynccontextmanager
async def open_body(response: httpx2.Response) -> AsyncIterator[PiecesInTurns]:
    """The body of a response, in pieces, for the length of the block; it need not be read to its end.

    httpx does not close the innermost of its generators when the outermost is closed. What they do hear of is a cancel, so the
    rest is read in a scope that is cancelled already.
    """
    async with aclosing(response.aiter_bytes()) as chunks:
        try:
            yield PiecesInTurns(chunks)
        finally:
            with trio.CancelScope() as at_once, suppress(StopAsyncIteration):
                at_once.cancel()
                while True:
                    # The first read that has to wait ends it, since the scope is cancelled already.
                    await anext(chunks)  # noqa: ASYNC102


def may_be_sent(error: httpx2.HTTPError) -> bool:
    """Return whether a request that failed with this error may have reached the server."""
    return not isinstance(error, NOT_SENT)


def error_text(error: Exception) -> str:
    """Return what went wrong, in words; httpx leaves some of its errors without any, and has them in a cause."""
    if is_plain_text(error):
        return "no TLS is spoken there; is it http:// instead of https://?"
    texts = [text for text in map(str, cause_chain(error)) if text]
    if not texts:
        return type(error).__name__
    text = texts[0] if texts[-1] == texts[0] else f"{texts[0]} ({texts[-1]})"
    return f"{text}{certificate_hint(error)}{'; is it https:// instead of http://?' if is_perhaps_tls(error) else ''}"


def is_perhaps_tls(error: Exception) -> bool:
    """Return whether plain HTTP was perhaps sent to a server that speaks TLS: it closes the connection, or sends an alert."""
    if not isinstance(error, httpx2.RemoteProtocolError):
        return False
    text = str(error)
    if not any(each in text for each in FROM_TLS):
        return False
    try:
        return error.request.url.scheme == "http"
    # An error without its request.
    except RuntimeError:
        return False
