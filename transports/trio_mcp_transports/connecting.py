"""What HTTP and WebSocket clients share: statuses of a busy server, headers of requests, errors of TLS that can be explained."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final, cast

import trio

from trio_mcp.base.checks import check_str_mapping
from trio_mcp.base.groups import cause_chain
from trio_mcp.client.sampling import maybe_await
from trio_mcp.client.target import check_headers, check_token
from trio_mcp.session.transport import AnyAuth, ClientAuth, HeaderSource, HttpAuth, ServerCredentials, TokenSource

BUSY: Final = (429, 503)
"""Statuses of a server that takes no requests now (Too Many Requests, Service Unavailable)."""

PLAIN_TEXT_REASONS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
"""What OpenSSL calls an answer that is not a TLS record."""


def is_plain_text(error: BaseException) -> bool:
    """Return whether a TLS handshake failed because the other side answered without TLS."""
    texts = [str(each) for each in cause_chain(error)]
    return any(reason in text for text in texts for reason in PLAIN_TEXT_REASONS)


def certificate_hint(error: BaseException) -> str:
    """Return what to do if the certificate of the server is not trusted, to be put behind the text; else an empty text."""
    if any("CERTIFICATE_VERIFY_FAILED" in str(each) for each in cause_chain(error)):
        return "; if the server is yours, set SSL_CERT_FILE to the file of its authority or of its certificate"
    return ""


# The headers of a client: fixed ones, or what a function returns.


class HeadersFailed(Exception):
    """The function that returns the headers failed; nothing was sent."""


async def current_headers(source: HeaderSource | None) -> Mapping[str, str]:
    """Return the headers to send now.

    Raises:
        HeadersFailed: the function failed, or returned what cannot be sent.
    """
    if source is None or isinstance(source, Mapping):
        return source or {}
    try:
        headers = check_str_mapping("headers", await maybe_await(source()))
        check_headers(headers)
    except Exception as error:
        raise HeadersFailed(f"the function headers= failed: {type(error).__name__}: {error}") from error
    return headers


# The credentials of a client: what `auth=` becomes over HTTP and WebSocket.


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
