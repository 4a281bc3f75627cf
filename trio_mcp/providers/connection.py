"""Requests to an API: its official client, on an HTTP client that limits what the API may send.

The official clients write the headers and find the URLs. This module replaces or disables the rest: they follow redirects, even
with the key to another host; they retry requests, each on its own schedule; and they read answers of any size.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Final, Protocol, TypeAlias

import httpx2
import trio

from ..base.checks import header_fault
from ..base.groups import cause_chain
from ..errors import ProviderError, ProviderErrorKind
from ..runtime.loop_turn import PiecesInTurns
from ..types import JsonObject
from .endpoint import Endpoint, malformed, rejected_with

CONNECT_TIMEOUT: Final = 10.0
"""Seconds to reach the API."""
MAX_BODY: Final = 8 * 1024 * 1024
"""Bytes of an answer."""
MAX_STREAM: Final = 64 * 1024 * 1024
"""Bytes of a streamed answer, in which each word of the text is an event."""
MAX_ERROR_BODY: Final = 64 * 1024
"""Bytes of the body of an error that are read."""
KEPT_CONNECTIONS: Final = 20
"""Idle connections that are kept for later requests."""
LEFTOVER_SECONDS: Final = 0.5
"""Seconds for the rest of a response whose answer is complete, so that its connection can carry the next request."""
CLOSE_SECONDS: Final = 2.0
"""Seconds for closing connections."""

OWN_HEADERS: Final = (
    "accept",
    "accept-encoding",
    "anthropic-version",
    "connection",
    "content-length",
    "content-type",
    "host",
    "user-agent",
)
CLIENT_HEADERS: Final = "x-stainless-"
"""What headers begin with in which the official clients describe themselves."""


class ModelClient(Protocol):
    """The official client of an API, with what is used of it."""

    errors: tuple[type[Exception], ...]

    def ask(self, body: JsonObject) -> AbstractAsyncContextManager[httpx2.Response]:
        """Send a request to the model. The body of the response is not read yet."""
        ...

    async def list_models(self) -> httpx2.Response:
        """Return the list of models, as a response that was read."""
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


MakeClient: TypeAlias = Callable[[Endpoint, httpx2.AsyncClient], ModelClient]


class TooLarge(httpx2.StreamError):
    """A response has more bytes than its limit, or is compressed, so that its size is unknown."""


class LimitedBody(httpx2.AsyncByteStream):
    """The body of a response up to a limit; that of an error is cut off there."""

    def __init__(self, stream: httpx2.AsyncByteStream, limit: int, *, is_error: bool) -> None:
        self._stream = stream
        self._limit = limit
        self._is_error = is_error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._limit
        pieces = aiter(self._stream)
        async for piece in pieces:
            if len(piece) > left:
                break
            left -= len(piece)
            yield piece
        else:
            return
        await read_rest(pieces, 0)
        if not self._is_error:
            raise TooLarge(f"it has more than {self._limit} bytes, which is the limit")
        yield piece[:left]

    async def aclose(self) -> None:
        await self._stream.aclose()


async def limit_body(response: httpx2.Response) -> None:
    """Replace the body of a response by one with a limit, which is UTF-8 whatever its type says."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise TooLarge("it is compressed, although the request asked for plain text")
    is_stream = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    limit = MAX_ERROR_BODY if not response.is_success else MAX_STREAM if is_stream else MAX_BODY
    # The official clients read errors as text. The API would choose a decoder that takes quadratic time, or raises.
    response.encoding = "utf-8"
    stream = response.stream
    if isinstance(stream, httpx2.AsyncByteStream):
        response.stream = LimitedBody(stream, limit, is_error=not response.is_success)


class OwnHeaders:
    """Removes headers that an official client takes from the environment: organizations, projects, and any that a user sets.

    One of these may replace the key, which is therefore written here. The clients would log it as a header of one request.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._key = endpoint.key

    async def __call__(self, request: httpx2.Request) -> None:
        for name in list(request.headers):
            if name not in OWN_HEADERS and not name.startswith(CLIENT_HEADERS):
                del request.headers[name]
        if self._key is not None:
            request.headers["authorization"] = f"Bearer {self._key}"


async def check_sendable(request: httpx2.Request) -> None:
    """Raise `httpx2.LocalProtocolError` if HTTP cannot send a header: an official client takes some from the environment.

    The error does not show the value, as that of the library would.
    """
    for name, value in request.headers.items():
        if fault := header_fault(value):
            raise httpx2.LocalProtocolError(f"the value of the header {name!r} {fault}")


def open_http(endpoint: Endpoint, *, keep: bool) -> httpx2.AsyncClient:
    """Return what makes the requests; `keep`: keep connections for later ones, until it is closed."""
    return httpx2.AsyncClient(
        # No limit for reads: a model may think for long, and the attempts have a deadline.
        timeout=httpx2.Timeout(None, connect=CONNECT_TIMEOUT),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=KEPT_CONNECTIONS if keep else 0),
        headers={"accept-encoding": "identity"},
        event_hooks={
            "request": [OwnHeaders(endpoint), check_sendable] if endpoint.is_named else [check_sendable],
            "response": [limit_body],
        },
        follow_redirects=False,
    )


class Body:
    """The pieces of a body; errors of the connection become `ProviderError`."""

    def __init__(self, pieces: AsyncIterator[bytes], endpoint: Endpoint) -> None:
        self._pieces = PiecesInTurns(pieces)
        self._endpoint = endpoint

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._pieces)
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            reason = str(error) or type(error).__name__
        raise malformed(f"it breaks off: {reason}", self._endpoint)

    async def read(self) -> bytes:
        """Return all of it."""
        return b"".join([piece async for piece in self])


class Connection:
    """An API as one provider uses it.

    Args:
        keep: keep connections for later requests, until `aclose`; otherwise each request closes its own.
    """

    def __init__(self, endpoint: Endpoint, make: MakeClient, *, keep: bool) -> None:
        self._endpoint = endpoint
        self._client = make(endpoint, open_http(endpoint, keep=keep))
        self._errors: tuple[type[Exception], ...] = (*self._client.errors, httpx2.HTTPError, httpx2.StreamError)

    @asynccontextmanager
    async def ask(self, body: JsonObject) -> AsyncIterator[Body]:
        """Send a request to the model, and give the body of the response for the length of the block.

        Raises:
            ProviderError: there is no response, or it is not a success.

        A cancel, like an error in the block, closes the connection.
        """
        async with AsyncExitStack() as stack:
            response = await self._checked(lambda: stack.enter_async_context(self._client.ask(body)))
            pieces = await stack.enter_async_context(_open_body(response))
            yield Body(pieces, self._endpoint)

    async def list_models(self) -> bytes:
        """Return the body of the list of models.

        Raises:
            ProviderError: there is none.
        """
        response = await self._checked(self._client.list_models)
        return response.content

    async def aclose(self) -> None:
        """Close the connections."""
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            await self._client.aclose()

    async def _checked(self, send: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
        try:
            return await send()
        except self._errors as error:
            failure = self._failure(error)
        # Outside of the block, so that it has no context: the errors of the clients have the request, with its headers.
        raise failure

    def _failure(self, error: Exception) -> ProviderError:
        response = getattr(error, "response", None)
        if isinstance(response, httpx2.Response):
            return rejected_with(response.status_code, response.headers, response.content, time.time(), self._endpoint)
        causes = list(cause_chain(error))
        if large := [cause for cause in causes if isinstance(cause, TooLarge)]:
            return malformed(str(large[0]), self._endpoint)
        http = [cause for cause in causes if isinstance(cause, httpx2.HTTPError)]
        reason = next((text for text in map(str, [*http, *causes]) if text), type(error).__name__)
        text = self._endpoint.hide_secrets(f"{self._endpoint.vendor.name} cannot be reached: {reason}")
        return ProviderError(text, kind=ProviderErrorKind.UNREACHABLE)


@asynccontextmanager
async def _open_body(response: httpx2.Response) -> AsyncIterator[AsyncIterator[bytes]]:
    """Give the pieces of a body for the length of the block; it need not be read to its end."""
    is_complete = False
    async with aclosing(response.aiter_bytes()) as pieces:
        try:
            yield pieces
            is_complete = True
        finally:
            await read_rest(pieces, LEFTOVER_SECONDS if is_complete else 0)  # noqa: ASYNC102


async def read_rest(pieces: AsyncIterator[bytes], seconds: float) -> None:
    """Read the rest of a body for at most `seconds`, and leave no generator open.

    httpx does not close the innermost of its generators when the outermost is closed. A cancel does reach it.
    """
    with trio.CancelScope(deadline=trio.current_time() + seconds) as scope:
        if not seconds:
            scope.cancel()
        with suppress(StopAsyncIteration, httpx2.HTTPError, httpx2.StreamError):
            while True:
                await anext(pieces)
