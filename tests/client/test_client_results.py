"""What a program reads from the result of a tool: its value, its type, and whether it is an error."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Any

import pytest
from connected import connected
from naming import naming, unnamed
from pydantic import BaseModel, ConfigDict
from scripted import Json, answered, conversation, said, works

from trio_mcp import Server, ToolError, ToolFailed, ToolResult
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.types import CallToolResult, ImageContent, JsonValue, TextContent

BOUND = 10


class Colour(Enum):
    RED = "red"


@dataclass
class Hit:
    title: str
    day: date


class Exact(BaseModel):
    model_config = ConfigDict(strict=True)

    day: date
    pair: tuple[int, int]


class Wrapper(BaseModel):
    """An object that looks like what the protocol wraps values into."""

    result: int


def served() -> Server:
    server = Server("results")

    async def fails() -> int:
        raise ToolError("no seat is left")

    values: list[tuple[str, object, object]] = [
        ("number", int, 5),
        ("nothing", None, None),
        ("missing", int | None, None),
        ("text", str, "5"),
        ("word", Colour, Colour.RED),
        ("hits", list[Hit], [Hit("a", date(2026, 7, 28))]),
        ("wrapper", Wrapper, Wrapper(result=5)),
        ("table", dict[str, int], {"a": 1}),
        ("anything", list, [1, "a"]),
        ("image", ImageContent, ImageContent(data="aGk=", mime_type="image/png")),
        ("exact", Exact, Exact(day=date(2026, 7, 28), pair=(1, 2))),
    ]
    for name, annotation, value in values:
        server.add_tool(returning(annotation, value), name=name)
    server.add_tool(fails)
    return server


def returning(annotation: object, value: object) -> Any:
    # Async, because the clock of these tests does not wait for threads.
    async def tool() -> object:
        return value

    tool.__annotations__["return"] = annotation
    return tool


@pytest.mark.parametrize("listed", [False, True], ids=["unlisted", "listed"])
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("number", 5),
        ("nothing", None),
        ("missing", None),
        ("text", "5"),
        ("word", "red"),
        ("hits", [{"title": "a", "day": "2026-07-28"}]),
        ("wrapper", {"result": 5}),
        ("table", {"a": 1}),
        ("anything", [1, "a"]),
        ("image", None),
    ],
)
async def test_data_is_the_value_that_the_tool_returned(mode: str, name: str, data: JsonValue, listed: bool) -> None:
    async with connected(served(), mode) as client:
        if listed:
            await client.list_tools()
        assert (await client.call_tool(name)).data == data


@pytest.mark.parametrize(
    ("content", "data"),
    [
        ({"content": [], "structuredContent": {"result": 1}}, 1),
        ({"content": [{"type": "text", "text": "1"}], "structuredContent": {"result": 1}}, 1),
        ({"content": [{"type": "text", "text": "a"}] * 2, "structuredContent": {"result": ["a", "a"]}}, ["a", "a"]),
        ({"content": [{"type": "text", "text": '{ "result": 1 }'}], "structuredContent": {"result": 1}}, {"result": 1}),
        ({"content": [], "structuredContent": {"result": 1, "more": 2}}, {"result": 1, "more": 2}),
        ({"content": [{"type": "text", "text": "["}], "structuredContent": {"result": None}}, None),
    ],
    ids=str,
)
def test_data_is_unwrapped_for_every_server_that_wraps_it(content: Json, data: JsonValue) -> None:
    assert CallToolResult.model_validate(content).data == data


@pytest.mark.parametrize(
    ("name", "returns", "value"),
    [
        ("number", int, 5),
        ("number", int | None, 5),
        ("missing", int | None, None),
        ("text", str, "5"),
        ("text", int, 5),
        ("word", Colour, Colour.RED),
        ("hits", list[Hit], [Hit("a", date(2026, 7, 28))]),
        ("wrapper", Wrapper, Wrapper(result=5)),
        ("table", dict[str, float], {"a": 1.0}),
        ("exact", Exact, Exact(day=date(2026, 7, 28), pair=(1, 2))),
        ("nothing", type(None), None),
    ],
    ids=str,
)
async def test_returns_gives_the_value_as_its_type(mode: str, name: str, returns: Any, value: object) -> None:
    async with connected(served(), mode) as client:
        given = await client.call_tool(name, returns=returns)
        assert (given, type(given)) == (value, type(value))


async def test_a_value_of_another_type_is_an_error_that_says_where(mode: str) -> None:
    async with connected(served(), mode) as client:
        with pytest.raises(RemoteProtocolError) as raised:
            await client.call_tool("hits", returns=list[Wrapper])
        assert unnamed(str(raised.value), "hits", "list", "0.result") == []
        with pytest.raises(RemoteProtocolError):
            await client.call_tool("image", returns=int)


@pytest.mark.parametrize("returns", [5, any, {}], ids=repr)
async def test_a_value_that_is_not_a_type_is_rejected_before_anything_is_sent(opening: Any, returns: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        with pytest.raises(TypeError, match=naming("returns")):
            await client.call_tool("number", returns=returns)
        await works(client, wire, start)


async def test_an_error_is_raised_where_the_program_asks_for_it(mode: str) -> None:
    async with connected(served(), mode) as client:
        result = await client.call_tool("fails")
        assert result.is_error is True
        with pytest.raises(ToolFailed, match="no seat is left"):
            _ = result.data
        with pytest.raises(ToolFailed, match="no seat is left"):
            result.check()
        with pytest.raises(ToolFailed, match="no seat is left"):
            await client.call_tool("fails", raise_on_error=True)
        with pytest.raises(ToolFailed, match="no seat is left"):
            await client.call_tool("fails", returns=int)
        good = await client.call_tool("number", raise_on_error=True)
        assert (good.check() is good, good.is_error) == (True, False)


def test_a_failure_has_the_structure_of_its_result() -> None:
    with pytest.raises(ToolFailed) as raised:
        ToolResult(structured_content={"code": 7}, is_error=True).check()
    assert raised.value.structured_content == {"code": 7}


@pytest.mark.parametrize("sent", [{}, {"isError": False}, {"isError": None}], ids=str)
async def test_a_result_that_is_no_error_says_false(opening: Any, sent: Json) -> None:
    async with conversation(opening) as (client, wire, start):
        _, result = await answered(wire, start(client.call_tool, "book"), "tools/call", {**said("x"), **sent})
    assert result.is_error is False


def test_only_an_error_has_is_error_on_the_wire() -> None:
    content = [TextContent(text="x")]
    assert "isError" not in CallToolResult(content=content).wire()
    assert CallToolResult(content=content, is_error=True).wire()["isError"] is True
