"""The official client of Anthropic; the only module that imports it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from anthropic import AnthropicError, AsyncAnthropic, Omit

from ..types import JsonObject
from .endpoint import Endpoint

NEEDED: Final = ("model", "messages", "max_tokens")
"""Members of a body that the client asks for as arguments. Each of its versions knows others of the rest, and passes on a body
that it need not know.
"""


class AnthropicClient:
    """The messages API and the list of models. Without a key it sends none."""

    errors: tuple[type[Exception], ...] = (AnthropicError,)

    def __init__(self, endpoint: Endpoint, http: httpx2.AsyncClient) -> None:
        self._client = AsyncAnthropic(
            api_key=endpoint.key or "none", base_url=endpoint.url, max_retries=0, timeout=http.timeout, http_client=http
        )
        self._headers = {} if endpoint.key else {"Authorization": Omit(), "X-Api-Key": Omit()}

    @asynccontextmanager
    async def ask(self, body: JsonObject) -> AsyncIterator[httpx2.Response]:
        """Send a request to the model. The body of the response is not read yet."""
        create: Any = self._client.messages.with_streaming_response.create
        needed = {member: body[member] for member in NEEDED}
        async with create(**needed, extra_body=body, extra_headers=self._headers) as response:
            yield response.http_response

    async def list_models(self) -> httpx2.Response:
        """Return the list of models, as a response that was read."""
        return await self._client.get("/v1/models", cast_to=httpx2.Response, options={"headers": self._headers})

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.close()
