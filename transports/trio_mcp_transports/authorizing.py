"""Requests over HTTP with the credentials of a client, which may have to log in first."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias, cast

import httpx2
import trio

from trio_mcp.client.dialects import probe
from trio_mcp.session.transport import HttpAuth, ServerCredentials

from .connecting import HeadersFailed

MAX_REJECTION: Final = 64 * 1024
"""Bytes of the body of a response that another attempt replaces."""
REJECTION_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 5.0
"""Seconds between two bytes of the response to the request that asks whether a login is needed."""


AddHeaders: TypeAlias = Callable[[httpx2.Request], Awaitable[None]]


class Authorizing(httpx2.Auth):
    """Sends requests with credentials, and again if these are rejected and others can be had.

    Args:
        before: adds the headers of the program, once.

    What `ServerCredentials` raises is raised to the sender of the request.

    Attributes:
        retries: whether requests are repeated.
    """

    def __init__(self, credentials: ServerCredentials, before: AddHeaders | None = None) -> None:
        self._credentials = credentials
        self._before = before
        self.retries = True

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Yield the request with its credentials, as often as it takes."""
        if self._before is not None:
            await self._before(request)
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
        while piece := await self._next(pieces, deadline if size < MAX_REJECTION else trio.current_time()):
            size += len(piece)
            yield piece

    @staticmethod
    async def _next(pieces: AsyncIterator[bytes], deadline: float) -> bytes:
        """Return the next piece; nothing at the end of the body, or of the time.

        A cancel is what ends the generators of httpx, which do not close each other: so the limit of the size is one, too.
        """
        with trio.CancelScope(deadline=deadline), suppress(StopAsyncIteration):
            return await anext(pieces)
        return b""

    async def aclose(self) -> None:
        """Close the body."""
        await self._body.aclose()


async def log_in_if_asked(
    http: httpx2.AsyncClient, url: str, credentials: ServerCredentials | HttpAuth | None, connect_seconds: float
) -> None:
    """Log in now if the server asks for it: what is sent later has time limits, and a user may take minutes.

    Raises:
        AuthorizationError: the login failed.
    """
    asked = cast("ServerCredentials | httpx2.Auth | None", credentials)
    if asked is None or isinstance(asked, httpx2.Auth) or await asked.ready():
        return
    request = probe()
    timeout = httpx2.Timeout(connect_seconds, read=PROBE_SECONDS, pool=None)
    # A server that cannot be reached is reported for the first message.
    with suppress(httpx2.HTTPError):
        async with http.stream("POST", url, json=request.message, headers=request.headers, timeout=timeout):
            pass
