"""An API that records what it was sent, for the tests of `from_openapi`: an `httpx2.AsyncClient` over a transport in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from connected import connected

from trio_mcp import Client
from trio_mcp.openapi import OpenApiServer, from_openapi
from trio_mcp.types import CallToolResult, JsonValue

BOUND = 30.0
BASE = "https://api.example/v1"

Json = dict[str, Any]
Respond = Callable[[httpx2.Request], httpx2.Response | Awaitable[httpx2.Response]]


def document(paths: Json, version: str = "3.1.0", **more: Any) -> Json:
    """A document with these paths."""
    return {"openapi": version, "info": {"title": "API", "version": "1"}, "paths": paths, **more}


def operation(parameters: list[Json] | None = None, *, method: str = "get", path: str = "/x", **more: Any) -> Json:
    """A document with one operation, `run`."""
    part = {"operationId": "run", "parameters": parameters or [], "responses": {}, **more}
    return document({path: {method: part}})


def param(name: str, location: str = "query", schema: Json | None = None, **more: Any) -> Json:
    return {"name": name, "in": location, "schema": schema or {}, **more}


class Api:
    """The API: `requests` has what came, and `respond` makes the responses."""

    def __init__(self, respond: Respond = lambda request: httpx2.Response(200, json={})) -> None:
        self.requests: list[httpx2.Request] = []
        self._respond = respond
        self.client = self.make_client()

    def make_client(self, **options: Any) -> httpx2.AsyncClient:
        self.client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._handle), **{"base_url": BASE, **options})
        return self.client

    async def _handle(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        self.requests.append(request)
        response = self._respond(request)
        return response if isinstance(response, httpx2.Response) else await response

    def server(self, source: Any, **options: Any) -> OpenApiServer:
        return from_openapi(source, self.client, **options)

    @asynccontextmanager
    async def connected(self, source: Any, **options: Any) -> AsyncIterator[Client]:
        async with connected(self.server(source, **options)) as client:
            yield client

    async def call(self, source: Any, arguments: dict[str, JsonValue] | None = None, **options: Any) -> CallToolResult:
        """Call the operation `run` of a document."""
        async with self.connected(source, **options) as client:
            return await client.call_tool("run", arguments or {})

    async def sent(self, source: Any, arguments: dict[str, JsonValue] | None = None, **options: Any) -> httpx2.Request:
        """The request that a call of the operation `run` makes."""
        result = await self.call(source, arguments, **options)
        assert not result.is_error, result.text
        return self.requests[-1]


def target(request: httpx2.Request) -> str:
    """The path and query of a request, below the base."""
    return request.url.raw_path.decode().removeprefix("/v1")
