"""The pet shop: a FastAPI application as tools, behind a search, in both eras."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio
from serving import served

from examples.pet_shop import PETS, report, server
from trio_mcp import Caller, Client

BOUND = 60.0
SELLERS = {"Bearer ann": Caller("ann", ["pets:write"]), "Bearer bob": Caller("bob", ["pets:write"])}


async def authenticate(headers: Mapping[str, str]) -> Caller | None:
    return SELLERS.get(headers.get("authorization", ""))


async def test_the_shop_is_searched_read_and_changed(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PETS, 3, "Bo")
    assert report.left_out == ()
    with trio.fail_after(BOUND):
        async with served(server, authenticate=authenticate) as url:
            async with Client.connect(url, mode=mode, headers={"Authorization": "Bearer ann"}) as client:
                assert [tool.name for tool in await client.list_tools()] == ["search_tools", "call_tool", "list_pets"]
                assert (await client.call_tool("list_pets")).data == ["Tom", "Rex", "Bo"]
                found = (await client.call_tool("search_tools", {"query": "sell"})).check()
                assert "sell_pet" in found.text
                (pet,) = (await client.read_resource("openapi://api/pets/3")).contents
                assert pet.text == '{"name":"Bo"}'  # type: ignore[union-attr]
                sold = await client.call_tool("call_tool", {"name": "sell_pet", "arguments": {"number": 3}})
                assert sold.check().data == "Bo"
            async with Client.connect(url, mode=mode, headers={"Authorization": "Bearer bob"}) as client:
                refused = await client.call_tool("call_tool", {"name": "sell_pet", "arguments": {"number": 1}})
                assert (refused.is_error, "a key is needed" in refused.text) == (True, True)
