"""The code of docs/openapi.md is one program, and does what the page says."""

from __future__ import annotations

import dataclasses
import re

import pytest
import trio
from pages import Names, Page
from talk import talk_to

from trio_mcp import Client
from trio_mcp.openapi import OpenApiLimits
from trio_mcp.openapi.adding import TIMEOUT
from trio_mcp.openapi.documents import MAX_DEPTH, MAX_VALUES
from trio_mcp.openapi.names import MAX_NAME
from trio_mcp.openapi.reading import READ_INLINE
from trio_mcp.openapi.sending import MAX_REDIRECTS
from trio_mcp.protocol.json_limits import JsonLimits

PAGE = Page("openapi")
BOUND = 20.0


@pytest.fixture
def page() -> Names:
    return PAGE.run()


async def test_the_main_program_prints_what_the_page_says(page: Names, capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(BOUND):
        await page["main"]()
    assert capsys.readouterr().out.splitlines() == [
        "['list_pets', 'add_pet', 'get_pet']",
        "{'name': 'Rex'}",
        "4",
        "The API answered 404 Not Found.",
        '{"detail":"there is no pet 9"}',
    ]


async def test_the_servers_of_the_page_offer_what_it_says(page: Names) -> None:
    assert page["report"].tools == ("list_pets", "get_pet")
    assert [tool.name for tool in page["chosen"].tools] == ["find_pets", "add_pet", "get_pet"]
    assert page["chosen"].tools[1].access.scopes == {"pets:write"}
    with trio.fail_after(BOUND):
        async with Client.connect(page["own"]) as client:
            assert [tool.name for tool in await client.list_tools()] == ["search_tools", "call_tool", "list_pets"]
            found = await client.call_tool("call_tool", {"name": "get_pet", "arguments": {"number": 1}})
            assert found.data == {"name": "Tom"}


async def test_the_credentials_of_the_page_are_those_of_the_caller(page: Names) -> None:
    async with talk_to(page["private"]) as talk:
        for principal, fails in (("ann", False), ("bob", True)):
            client = type(talk)(talk.service, principal=principal)
            result = await client.result(client.leg("list_pets"))
            assert result.get("isError", False) is fails


def test_the_numbers_are_those_of_the_code() -> None:
    limits = OpenApiLimits()
    table = dict(re.findall(r"^\| ([^|]*?) \| ([\d,]+(?: MiB)?) \|", PAGE.text, re.MULTILINE))
    values = [
        int(text.replace(",", "").removesuffix(" MiB")) * (1024**2 if "MiB" in text else 1) for text in table.values()
    ]
    assert values == list(dataclasses.astuple(limits))
    assert f"within `timeout` seconds ({TIMEOUT:g} by default)" in PAGE.prose
    assert f"at most {MAX_NAME} of them" in PAGE.prose
    assert MAX_REDIRECTS == 5
    chars = JsonLimits().max_number_chars
    assert f"at most {MAX_VALUES:,} values and names, {MAX_DEPTH} levels, and {chars} characters" in PAGE.prose
    assert f"more than {READ_INLINE // 1024} KiB" in PAGE.prose
    assert "at most five times" in PAGE.prose
