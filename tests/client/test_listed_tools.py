"""What a client does with the tools it has listed: arguments repeated in headers, and results checked (L-TOOL-6c)."""

from __future__ import annotations

import logging
import re
import threading
from logging import LoggerAdapter, getLogger
from typing import Any

import pytest
from naming import unnamed
from scripted import HINTS, Json, as_legacy, as_modern, conversation, list_tools
from scripted_http import modern_http

from trio_mcp.client.dialects import ModernDialect
from trio_mcp.client.lists import ListedTools
from trio_mcp.errors import PeerError, RemoteProtocolError
from trio_mcp.protocol.schema.json_schema import Schema
from trio_mcp.session.dropped_items import DroppedMembers
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
        await call.fails(PeerError, "still wrong")


def test_a_tool_with_headers_is_kept_when_tools_with_schemas_fill_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.client.lists.MAX_TOOLS", 2)
    plain: JsonObject = {"type": "object"}
    tools = [Tool(name="first", input_schema=REGION)]
    tools += [Tool(name=name, input_schema=plain, output_schema=plain) for name in ("second", "third", "fourth")]
    listed = ListedTools(DroppedMembers(LoggerAdapter(getLogger("trio_mcp.client"))))
    listed.add(tools, ModernDialect.__new__(ModernDialect))
    assert list(listed.by_name) == ["first", "fourth"]


# output schemas

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


@pytest.mark.parametrize(
    ("result", "more"),
    [
        ({"structuredContent": {"n": 3}}, {}),
        ({"isError": True}, {}),
        ({}, {"listed": False}),
        ({"structuredContent": None}, {"schema": {"type": "null"}}),
    ],
    ids=["it keeps the promise", "an error promises nothing", "the tool was not listed", "null is content too"],
)
async def test_a_result_is_handed_on(opening: Any, result: Json, more: Json) -> None:
    given = await answered(opening, result, **more)
    assert (given.structured_content, given.is_error) == (result.get("structuredContent"), "isError" in result)


@pytest.mark.parametrize(
    ("result", "said"), [({"structuredContent": {"n": "three"}}, r"structuredContent\.n"), ({}, "sent none")]
)
async def test_a_result_that_breaks_it_is_an_error_that_says_where(opening: Any, result: Json, said: str) -> None:
    error = await answered(opening, result)
    assert isinstance(error, RemoteProtocolError)
    assert re.search(f"count .*{said}", str(error))


@pytest.mark.trio  # in real time: a thread is waited for
async def test_a_check_that_a_server_made_costly_runs_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = {f"a{level}": {"allOf": [{"$ref": f"#/$defs/a{level + 1}"}] * 2} for level in range(20)}
    costly: Json = {"type": "object", "$ref": "#/$defs/a0", "$defs": {**twice, "a20": {}}}
    threads: list[int] = []
    monkeypatch.setattr(Schema, "check", lambda *_: threads.append(threading.get_ident()))
    assert (await answered(as_modern, {"structuredContent": {"n": 3}}, costly)).structured_content == {"n": 3}
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


async def test_an_unusable_schema_is_logged_and_checks_nothing(opening: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The schema is untrusted: nothing of it is fetched, and none of its patterns may run without a limit."""
    with caplog.at_level(logging.WARNING, "trio_mcp.client"):
        result = await answered(opening, {}, {"type": "object", "$ref": "https://example.com/schema.json"})
    assert result.structured_content is None
    assert unnamed(caplog.text, "count") == []
