"""From what a tool returns to what its caller gets."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import jsonschema
import pytest
from one_tool import result_of
from pydantic import BaseModel, Field
from talk import Json
from typing_extensions import TypedDict

from trio_mcp.server import ToolResult
from trio_mcp.server.values.text_results import return_spec
from trio_mcp.types import ImageContent, ResourceLink, TextContent


class Forecast(BaseModel):
    city: str
    high: float
    day: date | None = None
    alias: int = Field(default=1, serialization_alias="aliased")


@dataclass
class Point:
    x: int
    y: int = 0


class Row(TypedDict):
    name: str


class Colour(Enum):
    RED = "red"


IMAGE = ImageContent(data="aGk=", mime_type="image/png")
LINK = ResourceLink(name="log", uri="file:///log")


async def called(annotation: object, value: object, *, legacy: bool = False) -> Json:
    """What the caller of a tool with this return annotation gets for this value."""

    async def tool() -> object:
        return value

    tool.__annotations__["return"] = annotation
    return await result_of(tool, legacy=legacy)


def texts(result: Json) -> list[str]:
    return [block["text"] for block in result["content"]]


# without an output schema


@pytest.mark.parametrize(
    ("annotation", "value", "blocks"),
    [
        (str, "hello", [{"type": "text", "text": "hello"}]),
        (str, "", [{"type": "text", "text": ""}]),
        (None, None, []),
        (TextContent, TextContent(text="x"), [{"type": "text", "text": "x"}]),
        (ImageContent, IMAGE, [{"type": "image", "data": "aGk=", "mimeType": "image/png"}]),
        (list[TextContent], [TextContent(text="a"), TextContent(text="b")], ["a", "b"]),
        (list[TextContent | ImageContent], [TextContent(text="a"), IMAGE], ["a", "image"]),
        (Sequence[ResourceLink], [LINK], ["resource_link"]),
        (tuple[TextContent, ...], (TextContent(text="a"),), ["a"]),
        (str | ImageContent, IMAGE, ["image"]),
    ],
    ids=str,
)
async def test_text_and_blocks_are_content_without_a_structure(
    annotation: object, value: object, blocks: list[Any]
) -> None:
    result = await called(annotation, value)
    assert "structuredContent" not in result
    assert not result.get("isError")
    shown = [
        block if isinstance(expected, dict) else block.get("text", block["type"])
        for block, expected in zip(result["content"], blocks, strict=True)
    ]
    assert blocks == shown
    assert return_spec(annotation)[0] is None


async def test_a_tool_result_says_everything_itself() -> None:
    made = ToolResult(content=[TextContent(text="no")], structured_content={"a": 1}, is_error=True, meta={"x/y": 1})
    result = await called(ToolResult, made)
    assert (texts(result), result["structuredContent"], result["isError"]) == (["no"], {"a": 1}, True)
    assert result["_meta"]["x/y"] == 1


async def test_a_result_that_a_typed_tool_builds_has_its_structure_unless_it_is_an_error() -> None:
    fits = await called(Point, ToolResult(content=[], structured_content={"x": 1}))
    assert fits["structuredContent"] == {"x": 1}
    wrong = await called(Point, ToolResult(content=[], structured_content={"y": 1}))
    assert (wrong["isError"], "x: " in texts(wrong)[0]) == (True, True)
    closed = await called(Point, ToolResult(content=[TextContent(text="closed")], is_error=True))
    assert (closed["isError"], texts(closed)) == (True, ["closed"])


@pytest.mark.parametrize(
    ("value", "text"),
    [({"a": [1, None]}, '{"a":[1,null]}'), (7, "7"), (Point(1), '{"x":1,"y":0}'), ([], "[]")],
    ids=str,
)
async def test_without_an_annotation_a_value_is_shown_as_json(value: object, text: str) -> None:
    result = await called(Any, value)
    assert text in texts(result)[0]


@pytest.mark.parametrize(
    ("annotation", "value", "structure", "text"),
    [
        (list, [1, "a"], {"result": [1, "a"]}, '[1,"a"]'),
        (list[Any], [], {"result": []}, "[]"),
        (tuple, ("a", "b"), {"result": ["a", "b"]}, '["a","b"]'),
        (Any, 7, {"result": 7}, "7"),
        (Any, "red", {"result": "red"}, "red"),
        (Any, {"type": "text", "text": "x"}, {"result": {"type": "text", "text": "x"}}, '{"type":"text","text":"x"}'),
    ],
    ids=str,
)
async def test_what_may_hold_anything_has_a_structure_that_no_schema_promises(
    annotation: object, value: object, structure: Json, text: str
) -> None:
    result = await called(annotation, value)
    assert (result["structuredContent"], texts(result)) == (structure, [text])
    assert return_spec(annotation)[0] is None


async def test_a_structure_without_content_is_its_text_too() -> None:
    result = await called(ToolResult, ToolResult(structured_content={"a": [1]}))
    assert (result["structuredContent"], texts(result)) == ({"a": [1]}, ['{"a":[1]}'])
    typed = await called(int, ToolResult(structured_content={"result": 5}))
    assert (typed["structuredContent"], texts(typed)) == ({"result": 5}, ["5"])
    raw = await result_of(
        lambda: ToolResult(structured_content={"a": 1}), name="tool", output_schema={"type": "object"}
    )
    assert texts(raw) == ['{"a":1}']
    assert (await called(ToolResult, ToolResult(content=[], structured_content={"a": 1})))["content"] == []
    assert (await called(ToolResult, ToolResult()))["content"] == []


# with an output schema


LISBON: Json = {"city": "Lisbon", "high": 21.5, "day": None, "aliased": 1}
STRUCTURED: list[tuple[Any, Any, Json]] = [
    (Forecast, Forecast(city="Lisbon", high=21.5, day=date(2026, 7, 28)), {**LISBON, "day": "2026-07-28"}),
    (Forecast, {"city": "Lisbon", "high": 21.5}, LISBON),
    (Point, Point(1, 2), {"x": 1, "y": 2}),
    (Row, {"name": "a"}, {"name": "a"}),
    (dict[str, int], {"a": 1}, {"a": 1}),
    (int, 3, {"result": 3}),
    (bool, True, {"result": True}),
    (float, 1.5, {"result": 1.5}),
    (list[int], [1, 2], {"result": [1, 2]}),
    (list[str], ["a"], {"result": ["a"]}),
    (list[Point], [Point(1)], {"result": [{"x": 1, "y": 0}]}),
    (tuple[int, str], (1, "a"), {"result": [1, "a"]}),
    (int | None, None, {"result": None}),
    (Literal["a", "b"], "a", {"result": "a"}),
    (Colour, Colour.RED, {"result": "red"}),
    (date, date(2026, 7, 28), {"result": "2026-07-28"}),
    (Annotated[int, Field(ge=0)], 3, {"result": 3}),
]
"""A return annotation, a value, and its structured content."""


@pytest.mark.parametrize(("annotation", "value", "expected"), STRUCTURED, ids=str)
@pytest.mark.parametrize("legacy", [False, True], ids=["modern", "legacy"])
async def test_a_structure_is_sent_both_as_json_and_as_text(
    annotation: object, value: object, expected: Json, legacy: bool
) -> None:
    result = await called(annotation, value, legacy=legacy)
    assert expected == result["structuredContent"]
    (text,) = texts(result)
    # Of a value that only the protocol wraps into an object, the model reads the value.
    shown = expected.get("result", expected)
    assert shown == (text if isinstance(shown, str) else json.loads(text))


@pytest.mark.parametrize(("annotation", "value", "_expected"), STRUCTURED, ids=str)
async def test_the_output_schema_describes_an_object_that_the_result_fits(
    annotation: object, value: object, _expected: Json
) -> None:
    schema, _ = return_spec(annotation)
    assert schema["type"] == "object"
    jsonschema.validate((await called(annotation, value))["structuredContent"], schema)


@pytest.mark.parametrize(
    ("annotation", "value", "named"),
    [
        (Forecast, {"city": "Lisbon"}, "high: "),
        (Forecast, None, "value: "),
        (int, "many", "value: "),
        (list[int], [1, "two"], "1: "),
        (Row, {}, "name: "),
        (Forecast, Forecast.model_construct(city="Lisbon", high="warm"), "high: "),
        (list[Forecast], [Forecast.model_construct(city=7, high=1.0)], "0.city: "),
        (Point, Point("left", 0), "x: "),  # type: ignore[arg-type]
    ],
    ids=str,
)
async def test_a_value_that_breaks_its_annotation_is_an_error_result_that_says_where(
    annotation: object, value: object, named: str
) -> None:
    result = await called(annotation, value)
    assert result["isError"]
    assert named in texts(result)[0]
    assert "structuredContent" not in result


@pytest.mark.parametrize(
    ("annotation", "value", "named"),
    [
        (str, None, "None"),
        (str, 5, "int"),
        (str, {"a": 1}, "dict"),
        (str, ["a"], "list"),
        (str, b"a", "bytes"),
        (str, IMAGE, "ImageContent"),
        (None, "text", "str"),
        (None, {"a": 1}, "dict"),
        (None, IMAGE, "ImageContent"),
    ],
    ids=str,
)
@pytest.mark.parametrize("legacy", [False, True])
async def test_a_value_that_is_not_the_declared_text_is_an_error_result_that_names_its_type(
    annotation: object, value: object, named: str, legacy: bool
) -> None:
    result = await called(annotation, value, legacy=legacy)
    assert result["isError"]
    assert named in texts(result)[0]


@pytest.mark.parametrize("annotation", [str | None, Optional[str], None | str], ids=str)  # noqa: UP045
@pytest.mark.parametrize(("value", "text"), [("x", "x"), (None, "null")])
@pytest.mark.parametrize("legacy", [False, True])
async def test_a_union_with_text_has_a_structure_as_every_other_union(
    annotation: object, value: object, text: str, legacy: bool
) -> None:
    result = await called(annotation, value, legacy=legacy)
    assert (texts(result), result["structuredContent"]) == ([text], {"result": value})
    assert return_spec(annotation).schema["properties"].keys() == {"result"}
    assert (await called(annotation, 5, legacy=legacy))["isError"]


class Loud(str):
    __slots__ = ()


@pytest.mark.parametrize("annotation", [str, None], ids=str)
async def test_a_tool_that_declares_text_may_build_its_result(annotation: object) -> None:
    result = await called(annotation, ToolResult(content=[TextContent(text="no")], is_error=True))
    assert (texts(result), result["isError"]) == (["no"], True)


async def test_a_text_of_a_subclass_is_text() -> None:
    assert texts(await called(str, Loud("hey"))) == ["hey"]


class Loose(BaseModel):
    what: object


@pytest.mark.parametrize(
    ("annotation", "value", "path"),
    [
        (float, math.nan, "result"),
        (Forecast, Forecast(city="Lisbon", high=math.inf), "result.high"),
        (Loose, Loose(what=[1, math.nan]), "result.what[1]"),
        (dict[str, object], {"a": {"b": math.nan}}, "result.a.b"),
        (dict[str, object], {"a": ...}, "JSON"),
        (list[object], [math.nan], "result[0]"),
        (int, 10**320, "result"),
        (dict[str, int], {"a": -(10**319)}, "result.a"),
        (Any, {"a": 10**320}, "result.a"),
        (Any, {"a": math.nan}, "result.a"),
        (ToolResult, ToolResult(content=[], structured_content={"a": math.nan}), "a"),
        (ToolResult, ToolResult(content=[], structured_content={"a": 10**320}), "a"),
        (ToolResult, ToolResult(content=[], meta={"a": math.nan}), "a"),
    ],
    ids=repr,
)
async def test_what_json_cannot_say_is_an_error_result_that_names_the_path(
    annotation: object, value: object, path: str
) -> None:
    result = await called(annotation, value)
    assert result["isError"]
    (text,) = texts(result)
    assert path in text
