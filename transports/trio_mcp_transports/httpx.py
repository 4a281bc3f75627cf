"""What a client makes of a response that rejects a request."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from time import time
from typing import Final, cast

import httpx2
import trio

from trio_mcp.base.groups import cause_chain
from trio_mcp.base.values import one_line, shown_url
from trio_mcp.errors import RemoteProtocolError, RequestRejected, ServerBusy
from trio_mcp.protocol.http.headers import SESSION_HEADER, seconds_to_wait
from trio_mcp.protocol.json_limits import CLIENT_LIMITS
from trio_mcp.protocol.jsonrpc import (
    METHOD_NOT_FOUND,
    SERVER_BUSY,
    ErrorDetail,
    ErrorResponse,
    Malformed,
    Request,
    RequestId,
    Unanswered,
    dump,
    parse,
)
from trio_mcp.protocol.strict_json import JsonLimits
from trio_mcp.runtime.loop_turn import MANY_PIECES, BodyTooLarge, PiecesInTurns, PiecesTooSmall
from trio_mcp.session import Envelope, Received, Sent
from trio_mcp.session.transport import HeaderSource, HttpAuth, ServerCredentials

from .authorizing import Authorizing
from .connecting import BUSY, HeadersFailed, certificate_hint, current_headers, is_plain_text
from .cookies import ServerCookies

SESSION_LOST_MESSAGE: Final = "the server no longer knows the session"

MAX_LOCATION: Final = 500
"""Characters of the URL of a redirection that an error shows."""

FROM_PROXY: Final = (502, 504)
"""Statuses of a proxy whose server has ended, or has not answered in time (RFC 9110, 15.6.3 and 15.6.5)."""

WORTH_A_RETRY: Final = (408, 425)
"""Statuses that blame the time of a request (Request Timeout, Too Early), and not the request."""

LOST_SESSION: Final = re.compile(
    r"\bsession\b.{0,40}\b(not found|not exist|unknown|invalid|expired|terminated|closed)|"
    r"\b(no|no valid|invalid|unknown|expired|missing|stale) (mcp[- ])?session|server not initialized",
    re.IGNORECASE | re.DOTALL,
)
"""What servers say of a session that they no longer know, whatever the status is (TypeScript, Python, Java, Go)."""


def says_session_lost(status: int, body: bytes) -> bool:
    """Return whether a response in a session says that the server does not know it: by its status, or in words."""
    if status in (401, 403, *BUSY):
        return False
    return status == 404 or (status >= 400 and LOST_SESSION.search(excerpt(body)) is not None)


def error_reply(
    request: Request,
    session: Mapping[str, str],
    status: int,
    body: bytes,
    location: str = "",
    headers: Mapping[str, str] = {},
) -> ErrorResponse | Malformed | Unanswered:
    """Return the reply to a request that was rejected: the server's error if the body has one, else one with status and text.

    In a session 404 means that the session is lost, whatever the body says (L-HTTP-19c), unless that is about this request's
    method. Many servers have another status for it, and say it in words.

    A proxy answers in place of a server that has ended, perhaps while it ran the request: that is a lost response.

    Args:
        session: the headers that named the session; empty if the request belongs to none.
        location: the URL that the response redirects to; empty if to none.
        headers: those of the response.
    """
    message = parse(body)
    error = message.error if isinstance(message, ErrorResponse) else None
    # A modern server answers 404 to an unknown method, which says nothing about a session.
    about_method = error is not None and error.code == METHOD_NOT_FOUND
    if SESSION_HEADER in session and not about_method and says_session_lost(status, body):
        return Unanswered(request.id, SESSION_LOST_MESSAGE, session_lost=True)
    if error is None and is_lost(request, status, headers):
        return Unanswered(request.id, f"the server answered HTTP {status}{excerpt(body)}")
    if status in BUSY:
        said = error or ErrorDetail(SERVER_BUSY, f"the server answered HTTP {status}{excerpt(body)}")
        busy = ServerBusy(status, seconds_to_wait(headers, time()), *said[:3])
        return Unanswered(request.id, said.message, error=busy)
    if error is not None:
        return ErrorResponse(request.id, error)
    kind = RequestRejected if 400 <= status < 500 and status not in WORTH_A_RETRY else RemoteProtocolError
    more = redirection(location) if 300 <= status < 400 and location else excerpt(body)
    return Malformed(kind(f"the server answered HTTP {status}{more}"), request.id)


def is_lost(request: Request, status: int, headers: Mapping[str, str]) -> bool:
    """Return whether a response without an error of the server leaves it open whether that has served the request."""
    # Some proxies have 503 for a server that ended while it ran the request. One that is busy says for how long: without that, a
    # call must not be made once more as if it had not begun.
    return status in FROM_PROXY or (status == 503 and request.method == "tools/call" and "retry-after" not in headers)


def redirection(location: str) -> str:
    """Return where a response redirects to, to be put behind the status."""
    # A client does not go there: what it sends may be secret.
    return f": it redirects to {one_line(shown_url(location[:MAX_LOCATION]))}; give that URL if the server is there"


def excerpt(body: bytes) -> str:
    """Return the beginning of a body, to be put behind the status, in one line: it may be a page of HTML."""
    text = " ".join(body[:10_000].decode("utf-8", "replace").split())[:200]
    return f": {text}" if text else ""


# Limits of a client: times in seconds, sizes in bytes.

CONNECT_TIMEOUT: Final = 10.0
POST_TIMEOUT: Final = 5.0
MAX_MESSAGE: Final = CLIENT_LIMITS.max_bytes
MAX_VALUES: Final = CLIENT_LIMITS.max_values

INBOX: Final = 256
"""Messages that wait for the session to take them."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What a client allows a server.

    Attributes:
        connect: seconds to reach the server, and to hand it a message.
        post_timeout: seconds that the server may take to accept a message that it does not answer.
        message: bytes that one message of the server may have.
        values: how many values one message of the server may have (`JsonLimits.max_values`).
    """

    connect: float = CONNECT_TIMEOUT
    post_timeout: float = POST_TIMEOUT
    message: int = MAX_MESSAGE
    values: int = MAX_VALUES


# Requests on httpx2: the client that makes them, the bodies of their responses, and their errors in words.

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


def open_http(
    limits: ClientLimits, headers: HeaderSource | None, auth: ServerCredentials | HttpAuth | None = None
) -> httpx2.AsyncClient:
    """What makes the requests: as many connections as it takes, since a stream holds one for as long as it lasts."""
    # No limit for reads: a stream is silent for as long as nothing happens. Those who wait for an answer have limits of
    # their own.
    timeout = httpx2.Timeout(limits.connect, read=None, pool=None)
    connections = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
    source = HeaderFunction(headers, limits.connect) if callable(headers) else None
    given = {} if callable(headers) else dict(headers or {})
    return httpx2.AsyncClient(
        timeout=timeout,
        limits=connections,
        cookies=ServerCookies(),
        auth=auth_of(auth, source),
        headers={"accept-encoding": ", ".join(CODINGS), **given},
        event_hooks={"response": [check_coding, drop_odd_location]},
    )


def auth_of(auth: ServerCredentials | HttpAuth | None, source: HeaderFunction | None) -> httpx2.Auth | None:
    """Return what authenticates each request, after the function of the headers, if there is one."""
    if auth is None or isinstance(auth, httpx2.Auth):
        return auth or source
    return Authorizing(cast("ServerCredentials", auth), None if source is None else source.add_to)


async def check_coding(response: httpx2.Response) -> None:
    """Raise `httpx2.DecodingError` if a body is compressed more than once, or otherwise than by `CODINGS`."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity", *CODINGS):
        why = f"the answer is compressed ({coding:.40}); a client reads {' or '.join(CODINGS)}, once"
        raise httpx2.DecodingError(why, request=response.request)


async def drop_odd_location(response: httpx2.Response) -> None:
    """Remove a malformed `Location`: the library reads it even if it does not follow it, and some raise undeclared errors."""
    location = response.headers.get("location")
    if location is not None and joined_url(response.url, location) is None:
        del response.headers["location"]


class HeaderFunction(httpx2.Auth):
    """Adds to each request the headers that a function returns at that moment.

    Args:
        seconds: how long the function may take.
    """

    def __init__(self, source: HeaderSource, seconds: float) -> None:
        self._source = source
        self._seconds = seconds

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request with its headers."""
        await self.add_to(request)
        yield request

    async def add_to(self, request: httpx2.Request) -> None:
        """Add the headers to a request; what the protocol says in a header is not replaced."""
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

    @staticmethod
    def _is_set(name: str, request: httpx2.Request) -> bool:
        """Return whether a header is one of the protocol, and the request has it."""
        return (name in PROTOCOL_HEADERS or name.startswith("mcp-")) and name in request.headers


async def read_body(response: httpx2.Response, limit: int) -> bytes:
    """The body of a response.

    Raises:
        httpx2.RequestError: it broke off, has more than `limit` bytes, or many pieces of a few bytes.
    """
    async with open_body(response) as pieces:
        try:
            return await pieces.read(limit)
        except BodyTooLarge:
            why = f"the answer has more than {limit} bytes, which is the limit"
        except PiecesTooSmall:
            why = f"the answer comes in more than {MANY_PIECES} pieces of a few bytes"
        raise httpx2.ReadError(why)


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


def joined_url(base: httpx2.URL, reference: str) -> httpx2.URL | None:
    """Return the URL that a reference of a server leads to; None if it is not one."""
    try:
        url = base.join(reference)
        # Reading a host decodes it, which may fail only then.
        return url if url.host else None
    # Errors of IDNA are `ValueError`.
    except (httpx2.InvalidURL, ValueError):
        return None


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


# One server as a client reaches it: what is posted to it, and the messages that it sends.

LEFTOVER_SECONDS: Final = 1.0
"""Seconds that the body may take of a response that answers nothing."""


class ServerConnection:
    """The endpoint of one server, as one channel uses it.

    Attributes:
        shown: its URL in errors.
        inbox: messages of the server, whichever response brought them; `arrived` is its other end.
    """

    def __init__(self, url: str, http: httpx2.AsyncClient, limits: ClientLimits) -> None:
        self.url, self.shown = url, shown_url(url)
        self.http = http
        self.limits = limits
        self.arrived, self.inbox = trio.open_memory_channel[Envelope[Received]](INBOX)
        self.json_limits = JsonLimits(max_bytes=limits.message, max_values=limits.values)

    async def deliver(self, message: Received, about: RequestId | None = None) -> None:
        """Hand a message to the task that receives; one that comes after the channel was closed is dropped.

        Args:
            about: the request on whose response it came.
        """
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.arrived.send(Envelope(message, about))

    async def post_message(
        self, url: str, message: Sent, headers: Mapping[str, str], seconds: float
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Post a message that has no answer; return status, body, which need not end nor be well formed, and headers.

        Raises:
            httpx2.HTTPError: it did not arrive, or the server did not answer within `seconds`.
            AuthorizationError: there are no credentials that the server accepts.
        """
        status, body, received = 0, b"", httpx2.Headers()
        with trio.move_on_after(seconds):
            async with self.http.stream("POST", url, content=dump(message), headers=headers) as response:
                status, received = response.status_code, response.headers
                # Read to its end, so that its connection can carry the next message; a body without end costs the connection.
                # That of an error may hold its reason, and has all the time there is.
                rest = LEFTOVER_SECONDS if response.is_success else seconds
                with trio.move_on_after(rest), suppress(httpx2.HTTPError):
                    body = await read_body(response, self.limits.message)
        if not status:
            raise httpx2.ReadTimeout(f"it did not say within {seconds:g} seconds whether it took it")
        return status, body, received
