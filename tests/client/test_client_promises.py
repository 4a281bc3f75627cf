"""A client holds structured content against the output schema that it was shown (L-TOOL-6c)."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from naming import unnamed
from scripted import HINTS, Json, as_modern, conversation, list_tools

from trio_mcp.errors import RemoteProtocolError

NUMBER: Json = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


async def answered(opening: Any, result: Json, schema: Json = NUMBER, *, listed: bool = True) -> Any:
    """What the caller of a tool gets that promised `schema` and sent `result`, be it an error."""
    async with conversation(opening) as (client, wire, start):
        if listed:
            tool = {"name": "count", "inputSchema": {"type": "object"}, "outputSchema": schema}
            await list_tools(client, wire, start, {"tools": [tool], **HINTS})
        call = start(client.call_tool, "count")
        await wire.reply("tools/call", {"content": [], **result})
        try:
            return await call.result()
        except RemoteProtocolError as error:
            return error


async def test_a_result_that_keeps_the_promise_is_handed_on(opening: Any) -> None:
    assert (await answered(opening, {"structuredContent": {"n": 3}})).structured_content == {"n": 3}


@pytest.mark.parametrize(
    ("result", "said"), [({"structuredContent": {"n": "three"}}, r"structuredContent\.n"), ({}, "sent none")]
)
async def test_a_result_that_breaks_it_is_an_error_that_says_where(opening: Any, result: Json, said: str) -> None:
    error = await answered(opening, result)
    assert isinstance(error, RemoteProtocolError)
    assert re.search(f"count .*{said}", str(error))


async def test_an_error_result_promises_nothing(opening: Any) -> None:
    assert (await answered(opening, {"isError": True})).is_error


async def test_a_tool_that_was_not_listed_is_not_checked(opening: Any) -> None:
    assert (await answered(opening, {}, listed=False)).structured_content is None


async def test_a_schema_that_cannot_be_used_is_logged_and_checks_nothing(
    opening: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a stranger's: nothing of it is fetched, and none of its patterns may run for ever."""
    with caplog.at_level(logging.WARNING, "trio_mcp.client"):
        result = await answered(opening, {}, {"type": "object", "$ref": "https://example.com/schema.json"})
    assert result.structured_content is None
    assert unnamed(caplog.text, "count") == []


async def test_null_is_structured_content_too() -> None:
    result = await answered(as_modern, {"structuredContent": None}, {"type": "null"})
    assert result.structured_content is None
