"""A conversation with the tools of a real FastAPI application, which hypercorn serves on loopback, over every real hop."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import httpx2
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from serving import START, served
from shop_api import PNG, make_app

from trio_mcp import Caller, Client
from trio_mcp.openapi import fetch_openapi, from_openapi

BOUND = 30.0
TOKENS = {"Bearer mcp-ann": "ann", "Bearer mcp-bob": "bob"}


@asynccontextmanager
async def shop() -> AsyncIterator[str]:
    """The URL of the application, for the length of the block."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    over = trio.Event()
    async with trio.open_nursery() as nursery:
        start = partial(serve, make_app(), config, shutdown_trigger=over.wait, mode="asgi")  # type: ignore[arg-type]
        with trio.fail_after(START):
            (url, *_) = await nursery.start(start)
        yield url
        over.set()


async def authenticate(headers: Mapping[str, str]) -> str | None:
    return TOKENS.get(headers.get("authorization", ""))


def credentials(caller: Caller | None) -> dict[str, str]:
    return {"Authorization": f"Bearer shop-{caller.principal if caller else 'nobody'}"}


async def test_the_tools_of_a_real_api_work_over_real_connections(mode: str) -> None:
    with trio.fail_after(2 * BOUND):
        async with shop() as url, httpx2.AsyncClient(base_url=url) as http:
            server = from_openapi(await fetch_openapi("openapi.json", http), http, credentials=credentials)
            async with served(server, authenticate=authenticate) as address:
                headers = {"Authorization": "Bearer mcp-ann"}
                async with Client.connect(address, mode=mode, headers=headers) as client:
                    assert len(await client.list_tools()) == 13
                    added = await client.call_tool("add_pet", {"body": {"name": "Bo"}})
                    assert added.data == {"id": 3, "name": "Bo", "kind": "cat", "age": None}
                    photo = {"data": base64.b64encode(PNG).decode(), "name": "bo.png", "mime_type": "image/png"}
                    sent = await client.call_tool("set_photo", {"pet_id": 3, "body": {"photo": photo}})
                    assert sent.structured_content == {
                        "pet": 3,
                        "name": "bo.png",
                        "type": "image/png",
                        "size": len(PNG),
                        "title": "",
                    }
                    (image,) = (await client.call_tool("get_photo", {"pet_id": 3})).content
                    assert image.type == "image"
                    missing = await client.call_tool("get_pet", {"pet_id": 9})
                    assert (missing.is_error, "404" in missing.text) == (True, True)
                    assert (await client.call_tool("get_old_text")).text == "Open from nine to five."
                    first = await client.call_tool("list_pets", {"limit": 2})
                    following = (first.meta or {})["trio-mcp/next-page"]
                    assert following == {"limit": 2, "page": 2}


async def test_each_caller_has_credentials_and_the_token_of_none_is_passed_on(mode: str) -> None:
    with trio.fail_after(2 * BOUND):
        async with shop() as url, httpx2.AsyncClient(base_url=url) as http:
            server = from_openapi(await fetch_openapi("openapi.json", http), http, credentials=credentials)
            plain = from_openapi(await fetch_openapi("openapi.json", http), http)
            async with served(server, authenticate=authenticate) as address, served(plain) as open_address:
                for token, name in TOKENS.items():
                    async with Client.connect(address, mode=mode, headers={"Authorization": token}) as client:
                        who = (await client.call_tool("who_am_i")).data
                        assert who == {"authorization": f"Bearer shop-{name}", "shop": None, "session": None}
                async with Client.connect(open_address, mode=mode, headers={"Authorization": "Bearer mcp"}) as client:
                    who = (await client.call_tool("who_am_i")).data
                    assert who == {"authorization": None, "shop": None, "session": None}


async def test_an_encoded_slash_would_reach_another_route_and_is_refused() -> None:
    with trio.fail_after(BOUND):
        async with shop() as url, httpx2.AsyncClient(base_url=url) as http:
            # What the refusal is for: the server decodes the path before it looks for a route.
            assert (await http.get("/pets/1%2Fsecrets")).text == '"the owner\'s address"'
            document = await fetch_openapi("openapi.json", http)
            document["paths"]["/pets/{pet_id}"]["get"]["parameters"][0]["schema"] = {"type": "string"}  # type: ignore[index, call-overload]
            server = from_openapi(document, http, include=["GET /pets/{pet_id}"])
            async with Client.connect(server) as client:
                result = await client.call_tool("get_pet", {"pet_id": "1/secrets"})
    assert (result.is_error, "slash" in result.text) == (True, True)


async def test_an_api_that_is_gone_is_an_error_of_the_tool() -> None:
    with trio.fail_after(BOUND):
        async with shop() as url:
            async with httpx2.AsyncClient(base_url=url) as http:
                document = await fetch_openapi("openapi.json", http)
        async with httpx2.AsyncClient(base_url=url) as http:
            async with Client.connect(from_openapi(document, http)) as client:
                result = await client.call_tool("add_pet", {"body": {"name": "Bo"}})
    assert (result.is_error, "cannot be reached (ConnectError)" in result.text) == (True, True)
