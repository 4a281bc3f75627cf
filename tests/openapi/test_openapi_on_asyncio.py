"""The author's client and credentials on asyncio, where the other functions of the server run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import pytest
import trio
from both_loops import BOUND, beside_trio, in_program

from trio_mcp import Caller, Client, Server
from trio_mcp.openapi import OpenApiLimits, add_openapi, from_openapi

OK = {"200": {"description": ""}}
NUMBER = {"name": "number", "in": "path", "required": True, "schema": {"type": "string"}}
DOCUMENT: Any = {
    "openapi": "3.1.0",
    "info": {"title": "pets", "version": "1"},
    "paths": {
        "/pets": {"get": {"operationId": "list_pets", "responses": OK}},
        "/pets/{number}": {"get": {"operationId": "get_pet", "parameters": [NUMBER], "responses": OK}},
    },
}


class Body(httpx2.AsyncByteStream):
    """A body in pieces, each of which asyncio is awaited for."""

    def __init__(self, *pieces: bytes, hangs: bool = False) -> None:
        self._pieces, self._hangs = pieces, hangs
        self.events = list[str]()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            for piece in self._pieces:
                await asyncio.sleep(0)
                yield piece
            self.events.append("begun")
            if self._hangs:
                await asyncio.sleep(BOUND)
        finally:
            await asyncio.sleep(0)
            self.events.append("left")

    async def aclose(self) -> None:
        await asyncio.sleep(0)
        self.events.append("closed")


RUNS = pytest.mark.parametrize("run", [in_program, beside_trio])


def api(respond: Callable[[httpx2.Request], httpx2.Response]) -> httpx2.AsyncClient:
    async def handle(request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)
        return respond(request)

    return httpx2.AsyncClient(transport=httpx2.MockTransport(handle), base_url="https://api.example/v1")


async def key_of(_caller: Caller | None) -> dict[str, str]:
    await asyncio.sleep(0)
    return {"x-key": "a-key"}


def pets(client: httpx2.AsyncClient, **options: Any) -> Server:
    server = Server("pets", asyncio=True)
    add_openapi(server, DOCUMENT, client, resources=True, credentials=key_of, **options)
    return server


@RUNS
@pytest.mark.parametrize("is_said", [True, False])
def test_tools_and_resources_send_with_a_client_of_asyncio(run: Callable[..., None], is_said: bool) -> None:
    sent = list[str]()

    def respond(request: httpx2.Request) -> httpx2.Response:
        sent.append(f"{request.url.path} {request.headers['x-key']}")
        return httpx2.Response(200, stream=Body(b"[", b"1", b"]"), headers={"content-type": "application/json"})

    async def main() -> None:
        client = api(respond)
        said = from_openapi(DOCUMENT, client, resources=True, credentials=key_of, asyncio=True)
        async with Client.connect(said if is_said else pets(client)) as caller:
            assert (await caller.call_tool("get_pet", {"number": "2"})).text == "[1]"
            assert "[1]" in str(await caller.read_resource("openapi://api/pets"))

    run(main)
    assert sent == ["/v1/pets/2 a-key", "/v1/pets a-key"]


@RUNS
def test_a_response_over_the_limit_is_closed_on_asyncio(run: Callable[..., None]) -> None:
    body = Body(b"x" * 60, b"x" * 60, b"never")

    async def main() -> None:
        server = pets(api(lambda _: httpx2.Response(200, stream=body)), limits=OpenApiLimits(max_response=100))
        async with Client.connect(server) as caller:
            assert (await caller.call_tool("list_pets")).is_error

    run(main)
    assert body.events == ["left", "closed"]


@RUNS
def test_a_cancelled_call_closes_its_response_on_asyncio(run: Callable[..., None]) -> None:
    body = Body(b"x", hangs=True)

    async def main() -> None:
        server = pets(api(lambda _: httpx2.Response(200, stream=body)))
        async with Client.connect(server) as caller, trio.open_nursery() as nursery:
            nursery.start_soon(caller.call_tool, "list_pets")
            while not body.events:  # noqa: ASYNC110  it is set on asyncio
                await trio.sleep(0.001)
            nursery.cancel_scope.cancel()

    run(main)
    assert body.events == ["begun", "left", "closed"]
