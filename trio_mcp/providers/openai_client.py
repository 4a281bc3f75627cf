"""The official client of OpenAI; the only module that imports it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from openai import AsyncOpenAI, Omit, OpenAIError

from ..types import JsonObject
from .endpoint import Endpoint

NEEDED: Final = ("model", "messages")
"""Members of a body that the client asks for as arguments. Each of its versions knows others of the rest, and passes on a body
that it need not know.
"""


class OpenAIClient:
    """Chat completions and the list of models. Without a key it sends no `Authorization`."""

    errors: tuple[type[Exception], ...] = (OpenAIError,)

    def __init__(self, endpoint: Endpoint, http: httpx2.AsyncClient) -> None:
        self._client = AsyncOpenAI(
            api_key=endpoint.key or "none", base_url=endpoint.url, max_retries=0, timeout=http.timeout, http_client=http
        )
        self._headers = {} if endpoint.key else {"Authorization": Omit()}

    @asynccontextmanager
    async def ask(self, body: JsonObject) -> AsyncIterator[httpx2.Response]:
        """Send a request to the model. The body of the response is not read yet."""
        create: Any = self._client.chat.completions.with_streaming_response.create
        needed = {member: body[member] for member in NEEDED}
        async with create(**needed, extra_body=body, extra_headers=self._headers) as response:
            yield response.http_response

    async def list_models(self) -> httpx2.Response:
        """Return the list of models, as a response that was read."""
        return await self._client.get("/models", cast_to=httpx2.Response, options={"headers": self._headers})

    async def aclose(self) -> None:
        """Close its connections."""
        await self._client.close()
