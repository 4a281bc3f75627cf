"""`from_openapi` with a real FastAPI application, called in this process."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from connected import connected
from shop_api import PNG, make_app

from trio_mcp import Client
from trio_mcp.openapi import OpenApiServer, from_openapi
from trio_mcp.types import CallToolResult, JsonValue

BOTH = pytest.mark.parametrize("mode", ["modern", "legacy"])


def shop(**options: Any) -> OpenApiServer:
    app = make_app()
    client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://shop")
    return from_openapi(app, client, **options)


@asynccontextmanager
async def shopping(mode: str = "modern", **options: Any) -> AsyncIterator[Client]:
    async with connected(shop(**options), mode=mode) as client:
        await client.list_tools()
        yield client


async def call(client: Client, name: str, **arguments: JsonValue) -> CallToolResult:
    return await client.call_tool(name, arguments)


def test_each_operation_is_a_tool_named_by_its_function() -> None:
    server = shop()
    names = (
        "list_pets add_pet get_pet remove_pet get_secrets get_photo set_photo"
        " order who_am_i get_text get_tree get_old_text go_away"
    )
    assert [tool.name for tool in server.tools] == names.split()
    assert server.report.left_out == ()
    assert (server.identity.name, server.identity.version, server.identity.description) == (
        "Pet shop",
        "2.1",
        "Sells pets.",
    )


@BOTH
async def test_json_is_structure_with_an_output_schema(mode: str) -> None:
    async with shopping(mode) as client:
        tom = await call(client, "get_pet", pet_id=1)
        assert tom.structured_content == {"id": 1, "name": "Tom", "kind": "cat", "age": None}
        listed = await call(client, "list_pets", kinds=["dog"])
        assert listed.data == [{"id": 2, "name": "Rex", "kind": "dog", "age": 3}]
        tools = {tool.name: tool for tool in await client.list_tools()}
        output = tools["get_pet"].output_schema
        assert output is not None
        assert output["required"] == ["name", "id"]


@BOTH
async def test_bodies_are_sent_as_json_forms_and_files(mode: str) -> None:
    data = base64.b64encode(PNG).decode()
    async with shopping(mode) as client:
        added = await call(client, "add_pet", body={"name": "Bo", "kind": "dog"})
        assert added.data == {"id": 3, "name": "Bo", "kind": "dog", "age": None}
        ordered = await call(client, "order", body={"pet_id": 3, "gifts": ["ball", "bone & co"]})
        assert ordered.data == {"pet": 3, "gifts": ["ball", "bone & co"]}
        photo = {"data": data, "name": "bo.png", "mime_type": "image/png"}
        sent = await call(client, "set_photo", pet_id=3, body={"photo": photo, "title": "Bö"})
        assert sent.data == {"pet": 3, "name": "bo.png", "type": "image/png", "size": len(PNG), "title": "Bö"}
        text = await call(client, "set_photo", pet_id=3, body={"photo": {"text": "no photo"}})
        assert text.data == {"pet": 3, "name": "photo", "type": "text/plain; charset=utf-8", "size": 8, "title": ""}
        wrong = await call(client, "set_photo", pet_id=3, body={"photo": {"data": "%%"}})
        assert (wrong.is_error, "base64" in wrong.text) == (True, True)


@BOTH
async def test_other_responses_are_blocks(mode: str) -> None:
    async with shopping(mode) as client:
        (photo,) = (await call(client, "get_photo", pet_id=1)).content
        assert photo.type == "image"
        assert (photo.mime_type, base64.b64decode(photo.data)) == ("image/png", PNG)
        assert (await call(client, "get_text")).text == "Open from nine to five."
        assert (await call(client, "remove_pet", pet_id=2)).text == "204 No Content"


@BOTH
async def test_an_error_of_the_api_is_one_of_the_tool_with_its_status_and_body(mode: str) -> None:
    async with shopping(mode) as client:
        missing = await call(client, "get_pet", pet_id=9)
        assert missing.is_error
        assert missing.text == 'The API answered 404 Not Found.\n{"detail":"there is no pet 9"}'
        assert (missing.meta or {})["trio-mcp/http-status"] == 404


@BOTH
async def test_arguments_are_validated_before_anything_is_sent(mode: str) -> None:
    async with shopping(mode) as client:
        wrong = await call(client, "add_pet", body={"name": "Bo", "kind": "cow"})
        assert (wrong.is_error, "Invalid arguments for add_pet: body.kind" in wrong.text) == (True, True)
        unknown = await call(client, "get_pet", pet_id=1, id=2)
        assert unknown.is_error


@BOTH
async def test_a_recursive_schema_keeps_its_reference_and_the_report_mentions_it(mode: str) -> None:
    async with shopping(mode) as client:
        assert (await call(client, "get_tree")).data == {"name": "root", "children": [{"name": "leaf", "children": []}]}
    (tree,) = [each for each in shop().report.taken if each.tool == "get_tree"]
    assert any("keeps $ref" in note for note in tree.notes)


@BOTH
async def test_a_redirect_is_followed_on_the_same_host_only(mode: str) -> None:
    async with shopping(mode) as client:
        assert (await call(client, "get_old_text")).text == "Open from nine to five."
        away = await call(client, "go_away")
        assert away.is_error
        assert "https://evil.example/steal" in away.text


@BOTH
async def test_the_next_page_comes_as_arguments(mode: str) -> None:
    async with shopping(mode) as client:
        first = await call(client, "list_pets", limit=1, kinds=["cat", "dog"])
        following = (first.meta or {})["trio-mcp/next-page"]
        assert following == {"limit": 1, "page": 2, "kinds": ["cat", "dog"]}
        assert isinstance(following, dict)
        second = await call(client, "list_pets", **following)
        assert isinstance(second.data, list)
        assert [pet["name"] for pet in second.data if isinstance(pet, dict)] == ["Rex"]
        assert "trio-mcp/next-page" not in (second.meta or {})


@BOTH
async def test_safe_reads_become_resources(mode: str) -> None:
    async with shopping(mode, resources=True) as client:
        uris = [resource.uri.removeprefix("openapi://api/") for resource in await client.list_resources()]
        assert uris == ["pets", "whoami", "text", "tree", "old-text", "away"]
        templates = [template.uri_template for template in await client.list_resource_templates()]
        assert templates == [
            "openapi://api/pets/{pet_id}",
            "openapi://api/pets/{pet_id}/secrets",
            "openapi://api/pets/{pet_id}/photo",
        ]
        (text,) = (await client.read_resource("openapi://api/pets/1")).contents
        assert (text.uri, text.mime_type) == ("openapi://api/pets/1", "application/json")
        assert text.text == '{"name":"Tom","kind":"cat","age":null,"id":1}'  # type: ignore[union-attr]
        (photo,) = (await client.read_resource("openapi://api/pets/1/photo")).contents
        assert base64.b64decode(photo.blob) == PNG  # type: ignore[union-attr]
