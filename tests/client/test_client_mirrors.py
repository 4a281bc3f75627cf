"""Arguments that a client repeats in headers, and tools that it leaves out."""

from __future__ import annotations

import pytest
from scripted import HINTS, Json, as_legacy, as_modern, conversation, list_tools
from scripted_http import modern_http

from trio_mcp.client.dialects import ModernDialect
from trio_mcp.client.listed_tools import ListedTools
from trio_mcp.errors import PeerError
from trio_mcp.types import JsonObject, Tool

REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
ILLEGAL = {"type": "object", "properties": {"weight": {"type": "number", "x-mcp-header": "Weight"}}}


def with_schema(**schemas: Json) -> Json:
    return {**HINTS, "tools": [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]}


async def test_an_argument_that_the_schema_names_is_repeated_in_a_header() -> None:
    async with modern_http() as (client, wire, start):
        await list_tools(client, wire, start, with_schema(book=REGION))
        start(client.call_tool, "book", {"region": "Zürich", "other": "x"})
        post = await wire.post()
        assert post.headers["mcp-param-region"] == "=?base64?WsO8cmljaA==?="
        assert [name for name in post.headers if name.startswith("mcp-param")] == ["mcp-param-region"]
        start(client.call_tool, "book", {"region": None})
        assert "mcp-param-region" not in (await wire.post()).headers


async def test_a_tool_with_an_illegal_annotation_is_left_out_and_only_that(caplog: pytest.LogCaptureFixture) -> None:
    async with conversation(as_modern) as (client, wire, start):
        tools = with_schema(good=REGION, bad=ILLEGAL, plain={"type": "object"})
        assert await list_tools(client, wire, start, tools) == ["good", "plain"]
    assert "bad" in caplog.text
    assert "weight" in caplog.text
    async with conversation(as_legacy) as (client, wire, start):
        assert await list_tools(client, wire, start, with_schema(bad=ILLEGAL)) == ["bad"]  # it means nothing there


async def test_a_call_whose_headers_were_refused_is_made_once_more_with_the_tools_as_they_are() -> None:
    async with modern_http() as (client, wire, start):
        call = start(client.call_tool, "book", {"region": "Lisbon"})
        first = await wire.post()
        assert "mcp-param-region" not in first.headers  # nothing was listed yet
        first.refuse(400, -32020, "mcp-param-region is missing")
        await wire.reply("tools/list", {**with_schema(book=REGION), "resultType": "complete"})
        second = await wire.post()
        assert second.headers["mcp-param-region"] == "Lisbon"
        assert second.message["id"] != first.message["id"]
        second.refuse(400, -32020, "still wrong")
        with pytest.raises(PeerError, match="still wrong"):
            await call.result()


def test_a_tool_with_headers_is_kept_when_tools_with_schemas_alone_fill_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trio_mcp.client.listed_tools.MAX_TOOLS", 2)
    plain: JsonObject = {"type": "object"}
    tools = [Tool(name="first", input_schema=REGION)]
    tools += [Tool(name=name, input_schema=plain, output_schema=plain) for name in ("second", "third", "fourth")]
    listed = ListedTools()
    listed.add(tools, ModernDialect.__new__(ModernDialect))
    assert list(listed.by_name) == ["first", "fourth"]
