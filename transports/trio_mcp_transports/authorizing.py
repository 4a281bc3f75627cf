"""The credentials of a client over HTTP and WebSocket: what `auth=` becomes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeGuard, cast

import httpx2
import trio

from trio_mcp.client.sampling import maybe_await
from trio_mcp.client.target import check_headers
from trio_mcp.protocol.http.headers import headers_of
from trio_mcp.protocol.jsonrpc import Request, dump
from trio_mcp.protocol.revisions import CLIENT_CAPABILITIES, MODERN, PROTOCOL_VERSION
from trio_mcp.session.transport import AnyAuth, ClientAuth, ServerCredentials, TokenSource
from trio_mcp.types import JsonObject

from .connecting import HeadersFailed

MAX_REJECTION: Final = 64 * 1024
"""Bytes of the body of a response that another attempt replaces."""
REJECTION_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 5.0
"""Seconds between two bytes of the response to the request that asks whether a login is needed."""


class BearerToken:
    """A token that the program has, or a function that returns it.

    Args:
        source: called before each request if it is a function.
        seconds: how long it may take.
    """

    def __init__(self, source: TokenSource, seconds: float) -> None:
        self._source = source
        self._seconds = seconds

    async def ready(self) -> bool:
        """Return True: there is no login."""
        await trio.lowlevel.checkpoint()
        return True

    def attempts(self, _method: str, _url: str, /) -> BearerToken:
        """Return the token, which is the same for every request."""
        return self

    async def headers(self) -> Mapping[str, str]:
        """Return the header with the token.

        Raises:
            HeadersFailed: the function failed, took too long, or returned something else. The error shows no token.
        """
        token: object = self._source
        if callable(self._source):
            token = await self._called()
        if not isinstance(token, str) or not token:
            raise HeadersFailed(f"the function auth= returned {type(token).__name__} instead of a token")
        headers = {"authorization": f"Bearer {token}"}
        try:
            check_headers(headers, "auth")
        except ValueError:
            raise HeadersFailed("auth= is not a token that a header can hold") from None
        return headers

    async def _called(self) -> object:
        assert callable(self._source)
        try:
            with trio.fail_after(self._seconds):
                return await maybe_await(self._source())
        except trio.TooSlowError:
            why = f"did not return within {self._seconds:g} seconds"
        # Whatever a function of the program raises: its text may have the token.
        except Exception as error:  # noqa: BLE001
            why = f"failed with {type(error).__name__}"
        raise HeadersFailed(f"the function auth= {why}")

    async def retry(self, _status: int, _headers: Mapping[str, str], /) -> bool:
        """Return False: there is no other token."""
        await trio.lowlevel.checkpoint()
        return False


def is_client_auth(auth: object) -> TypeGuard[ClientAuth]:
    return hasattr(auth, "open")


@asynccontextmanager
async def open_credentials(
    auth: AnyAuth | None, url: str, seconds: float
) -> AsyncGenerator[ServerCredentials | httpx2.Auth | None]:
    """Yield the credentials for the server at a URL; None if there are none.

    Args:
        seconds: how long a function that returns a token may take.
    """
    if auth is None or isinstance(auth, httpx2.Auth):
        yield auth
    elif is_client_auth(auth):
        async with auth.open(url) as credentials:
            yield credentials
    else:
        yield BearerToken(cast("TokenSource", auth), seconds)


class Authorizing(httpx2.Auth):
    """Sends requests with credentials, and again if these are rejected and others can be had.

    Args:
        before: adds the headers of the program.

    What `ServerCredentials` raises is raised to the sender of the request.

    Attributes:
        retries: whether requests are repeated.
    """

    def __init__(self, credentials: ServerCredentials | httpx2.Auth, before: httpx2.Auth | None = None) -> None:
        self._credentials = credentials
        self._before = before
        self.retries = True

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request with its credentials, as often as it takes."""
        if self._before is not None:
            # Yields the request once, when it has its headers.
            async for request in self._before.async_auth_flow(request):  # noqa: B007
                break
        if isinstance(self._credentials, httpx2.Auth):
            flow = self._credentials.async_auth_flow(request)
            sent = await anext(flow)
            with suppress(StopAsyncIteration):
                while True:
                    sent = await flow.asend((yield sent))
            return
        attempts = self._credentials.attempts(request.method, str(request.url))
        while True:
            try:
                request.headers.update(await attempts.headers())
            except HeadersFailed as error:
                raise httpx2.ConnectError(str(error), request=request) from None
            response = yield request
            if not self.retries or not await attempts.retry(response.status_code, response.headers):
                return
            # The client reads the whole body before it sends the next request.
            response.stream = LimitedBody(cast("httpx2.AsyncByteStream", response.stream))


def end_retries(http: httpx2.AsyncClient) -> None:
    """Send each request once from now on: a client that closes must not open a browser."""
    if isinstance(http.auth, Authorizing):
        http.auth.retries = False


class LimitedBody(httpx2.AsyncByteStream):
    """The beginning of a body: of limited size, and within a limited time."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, pieces = 0, self._body.__aiter__()
        deadline = trio.current_time() + REJECTION_SECONDS
        while size < MAX_REJECTION:
            piece = None
            with trio.move_on_at(deadline), suppress(StopAsyncIteration):
                piece = await anext(pieces)
            if piece is None:
                return
            size += len(piece)
            yield piece

    async def aclose(self) -> None:
        """Close the body."""
        await self._body.aclose()


async def log_in_if_asked(
    http: httpx2.AsyncClient, url: str, credentials: ServerCredentials | httpx2.Auth | None, connect_seconds: float
) -> None:
    """Log in now if the server asks for it: what is sent later has time limits, and a user may take minutes.

    Raises:
        AuthorizationError: the login failed.
    """
    if credentials is None or isinstance(credentials, httpx2.Auth) or await credentials.ready():
        return
    params: JsonObject = {"_meta": {PROTOCOL_VERSION: MODERN, CLIENT_CAPABILITIES: {}}}
    headers = {
        **headers_of("server/discover", params),
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
    }
    content = dump(Request(0, "server/discover", params))
    timeout = httpx2.Timeout(connect_seconds, read=PROBE_SECONDS, pool=None)
    # A server that cannot be reached is reported for the first message.
    with suppress(httpx2.HTTPError):
        async with http.stream("POST", url, content=content, headers=headers, timeout=timeout):
            pass
