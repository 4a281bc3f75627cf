"""The credentials of a client: what `auth=` becomes over HTTP and WebSocket."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import trio

from trio_mcp.client.sampling import maybe_await
from trio_mcp.client.target import check_token
from trio_mcp.session.transport import AnyAuth, ClientAuth, HttpAuth, ServerCredentials, TokenSource

from .connecting import HeadersFailed


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
        if not isinstance(token, str):
            raise HeadersFailed(f"the function auth= returned {type(token).__name__} instead of a token")
        try:
            check_token(token)
        except ValueError as error:
            raise HeadersFailed(str(error)) from None
        return {"authorization": f"Bearer {token}"}

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


@asynccontextmanager
async def open_credentials(
    auth: AnyAuth | None, url: str, seconds: float
) -> AsyncGenerator[ServerCredentials | HttpAuth | None]:
    """Yield the credentials for the server at a URL; None if there are none, and what is of httpx2 as it is.

    Args:
        seconds: how long a function that returns a token may take.
    """
    if hasattr(auth, "open"):
        async with cast("ClientAuth", auth).open(url) as credentials:
            yield credentials
    elif auth is None or hasattr(auth, "async_auth_flow"):
        yield cast("HttpAuth | None", auth)
    else:
        yield BearerToken(cast("TokenSource", auth), seconds)
