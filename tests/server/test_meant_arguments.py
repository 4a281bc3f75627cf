"""Arguments that a model wrote as JSON text, where no string is valid; whole numbers that were written as fractions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Strict

from trio_mcp import Client, Server
from trio_mcp.server.values.callables import meant_arguments
from trio_mcp.types import JsonObject, JsonValue


class Filter(BaseModel):
    tags: list[str]


@dataclass
class Point:
    x: int


server = Server("texts")


@server.tool
def typed(
    tags: list[str] | None = None,
    filter: Filter | None = None,
    point: Point | None = None,
    scores: dict[str, int] | None = None,
    text: str = "",
    either: list[int] | str = "",
    anything: Any = None,
    count: Annotated[int, Strict()] = 0,
) -> list[Any]:
    found = (tags, filter and filter.tags, point and point.x, scores, text, either, anything, count)
    return [each for each in found if each]


@server.tool(
    input_schema={
        "type": "object",
        "properties": {"tags": {"type": "array"}, "text": {"type": "string"}, "any": {}},
        "additionalProperties": False,
    }
)
def raw(arguments: JsonObject) -> list[JsonValue]:
    return [*arguments.values()]


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("typed", {"tags": '["a", "b"]'}, [["a", "b"]]),
        ("typed", {"filter": '{"tags": ["a"]}'}, [["a"]]),
        ("typed", {"point": ' {"x": 1.0}'}, [1]),
        ("typed", {"scores": '{"a": 1}'}, [{"a": 1}]),
        ("typed", {"count": 3.0}, [3]),
        ("typed", {"text": "[1]", "either": "[1]", "anything": "[1]"}, ["[1]", "[1]", "[1]"]),
        ("raw", {"tags": "[1]"}, [[1]]),
        ("raw", {"text": "[1]", "any": "{}"}, ["[1]", "{}"]),
    ],
)
async def test_json_text_is_read_where_no_string_is_valid(tool: str, arguments: JsonObject, expected: object) -> None:
    async with Client.connect(server) as client:
        assert (await client.call_tool(tool, arguments)).data == expected


@pytest.mark.parametrize(
    ("tool", "arguments", "named"),
    [
        ("typed", {"tags": "a, b"}, "tags"),
        ("typed", {"tags": '["a"'}, "tags"),
        ("typed", {"tags": '{"a": 1, "a": 2}'}, "tags"),
        ("typed", {"filter": '{"tag": []}'}, "filter.tags"),
        ("typed", {"count": 3.5}, "count"),
        ("raw", {"tags": '"[1]"'}, "tags"),
    ],
)
async def test_text_that_does_not_fit_is_an_error_of_its_argument(tool: str, arguments: JsonObject, named: str) -> None:
    async with Client.connect(server) as client:
        result = await client.call_tool(tool, arguments)
        assert result.is_error
        assert named in result.text


NODE: JsonObject = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}


@pytest.mark.parametrize(
    ("schema", "is_read"),
    [
        (True, False),
        ({}, False),
        ({"type": ["array", "null"]}, True),
        ({"type": ["array", "string"]}, False),
        ({"enum": [[1], None]}, True),
        ({"enum": [[1], "[1]"]}, False),
        ({"const": [1]}, True),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, True),
        ({"anyOf": [{"type": "array"}, {}]}, False),
        ({"allOf": [{}, {"type": "array"}]}, True),
        ({"$ref": "#/$defs/Node"}, True),
        ({"$ref": "#/$defs/Loop"}, False),
        ({"$ref": "#/properties/x"}, False),
    ],
)
def test_a_string_counts_as_valid_unless_the_schema_excludes_it(schema: JsonValue, is_read: bool) -> None:
    whole: JsonObject = {"properties": {"a": schema}, "$defs": {"Node": NODE, "Loop": {"$ref": "#/$defs/Loop"}}}
    assert meant_arguments({"a": "[1]"}, whole) == {"a": [1] if is_read else "[1]"}


def test_arguments_that_are_written_as_the_schema_has_them_are_not_copied() -> None:
    arguments: JsonObject = {"a": "b", "c": 1.0, "d": "[1]"}
    schema: JsonObject = {"properties": {"a": {"type": "string"}, "c": {"type": "number"}}}
    assert meant_arguments(arguments, schema) is arguments
