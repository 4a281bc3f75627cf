"""An author's HTTP client that runs on asyncio."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import trio

from .. import to_asyncio
from .bodies import FormFile
from .sending import CLOSE_SECONDS, HttpClient, HttpRequest, HttpResponse

RequestT = TypeVar("RequestT", bound=HttpRequest)


class AsyncioClient(Generic[RequestT]):
    """Sends requests on asyncio, for a caller on Trio; see `HttpClient`."""

    def __init__(self, client: HttpClient[RequestT]) -> None:
        self._client = client

    @property
    def base_url(self) -> object:
        """See `HttpClient`."""
        return self._client.base_url

    def __getattr__(self, name: str) -> object:
        # `params` and `headers`, which not every client has.
        return getattr(self._client, name)

    def build_request(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None,
        files: Sequence[FormFile] | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> RequestT:
        """See `HttpClient`."""
        return self._client.build_request(method, url, content=content, files=files, headers=headers, timeout=timeout)

    async def send(self, request: RequestT, *, stream: bool, follow_redirects: bool) -> HttpResponse:
        """See `HttpClient`."""
        send = partial(self._client.send, request, stream=stream, follow_redirects=follow_redirects)
        return AsyncioResponse(await to_asyncio.run(send))


class AsyncioResponse:
    """A response that is read on asyncio, by a caller on Trio; see `HttpResponse`."""

    def __init__(self, response: HttpResponse) -> None:
        self._response = response

    @property
    def status_code(self) -> int:
        """See `HttpResponse`."""
        return self._response.status_code

    @property
    def headers(self) -> Mapping[str, str]:
        """See `HttpResponse`."""
        return self._response.headers

    def aiter_bytes(self) -> AsyncGenerator[bytes]:
        """See `HttpResponse`."""
        return pieces_of(self._response.aiter_bytes())

    def aiter_raw(self) -> AsyncGenerator[bytes]:
        """See `HttpResponse`."""
        return pieces_of(self._response.aiter_raw())

    async def aclose(self) -> None:
        """See `HttpResponse`."""
        await to_asyncio.run(self._response.aclose)


async def pieces_of(pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the pieces of a body that is read on asyncio."""

    async def following() -> bytes | None:
        return await anext(pieces, None)

    try:
        while (piece := await to_asyncio.run(following)) is not None:
            yield piece
    finally:
        if isinstance(pieces, AsyncGenerator):
            with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_SECONDS):
                await to_asyncio.run(pieces.aclose)
