"""The schemas that a host shows to a model: without references and invented titles."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from naming import unnamed
from pydantic import BaseModel, ConfigDict, Field
from talk import Json
from typing_extensions import TypedDict

from trio_mcp import Mirrored, Server
from trio_mcp.server.values.schemas import MAX_INLINED, encoded_size, inlined, is_open
from trio_mcp.server.values.text_results import return_spec

LOGGER = "trio_mcp.tool"


class Cabin(Enum):
    ECONOMY = "economy"
    FIRST = "first"


@dataclass
class Point:
    x: int


class Row(TypedDict):
    name: str


class Leg(BaseModel):
    """One leg."""

    start: Point
    cabin: Cabin
    row: Row
    label: str = Field("a", title="A title")


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"


class Node(BaseModel):
    children: list[Node] = []
    leg: Leg | None = None


class Titled(BaseModel):
    model_config = ConfigDict(title="Named by its author")

    title: str


def schema_for(annotation: object) -> Json:
    """The input schema of a tool with one parameter of this type."""

    def tool(value: Any) -> None: ...

    tool.__annotations__["value"] = annotation
    return Server("schemas").add_tool(tool).model.input_schema


def members(node: object, key: str) -> list[Any]:
    """Every value under this key, at any depth."""
    if isinstance(node, list):
        return [found for item in node for found in members(item, key)]
    if not isinstance(node, dict):
        return []
    own = [node[key]] if key in node else []
    return own + [found for value in node.values() for found in members(value, key)]


@pytest.mark.parametrize(
    "annotation",
    [
        Leg,
        list[Leg],
        Leg | None,
        dict[str, Cabin],
        tuple[Point, Row],
        Annotated[Cat | Dog, Field(discriminator="kind")],
    ],
)
def test_an_input_schema_has_no_references(annotation: object) -> None:
    schema = schema_for(annotation)
    assert (members(schema, "$ref"), members(schema, "$defs"), members(schema, "mapping")) == ([], [], [])
    jsonschema.Draft202012Validator.check_schema(schema)


def test_what_an_author_writes_beside_a_type_is_nearer_than_the_type() -> None:
    schema = schema_for(Annotated[Leg, Field(description="The first leg")])
    assert schema["properties"]["value"]["description"] == "The first leg"
    assert schema_for(Leg)["properties"]["value"]["description"] == "One leg."


def test_only_the_titles_of_the_author_are_left() -> None:
    assert members(schema_for(Leg), "title") == ["A title"]
    assert schema_for(Titled)["properties"]["value"]["title"] == "Named by its author"
    # A property that is called `title` is none.
    assert "title" in schema_for(Titled)["properties"]["value"]["properties"]
    assert schema_for(Annotated[int, Field(title="Mine")])["properties"]["value"]["title"] == "Mine"
    returned, _ = return_spec(list[Leg])
    assert members(returned, "title") == ["A title"]


def test_what_an_author_adds_to_a_schema_stays() -> None:
    extra = Annotated[str, Field(json_schema_extra={"x-widget": "colour", "title": "Shade"}), Mirrored("Shade")]
    shown = schema_for(extra)["properties"]["value"]
    assert (shown["x-widget"], shown["title"], shown["x-mcp-header"]) == ("colour", "Shade", "Shade")


def test_a_recursive_type_keeps_its_references_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        schema = schema_for(Node)
    assert set(schema["$defs"]) == {"Node"}
    assert set(members(schema, "$ref")) == {"#/$defs/Node"}
    assert "start" in schema["$defs"]["Node"]["properties"]["leg"]["anyOf"][0]["properties"]
    (record,) = caplog.records
    assert unnamed(record.getMessage(), "tool", "$ref", "Node") == []
    jsonschema.validate({"value": {"children": [{"children": []}]}}, schema)


def test_a_recursive_result_is_described_as_an_object() -> None:
    schema, _ = return_spec(Node)
    assert (schema["type"], set(members(schema, "title"))) == ("object", {"A title"})
    jsonschema.validate({"children": [{"children": [], "leg": None}], "leg": None}, schema)
    wrapped, _ = return_spec(list[Node])
    assert wrapped is not None
    jsonschema.validate({"result": [{"children": [], "leg": None}]}, wrapped)


def test_a_schema_that_would_be_too_large_keeps_its_references(caplog: pytest.LogCaptureFixture) -> None:
    kind: Any = int
    # Each model doubles what its references stand for: 2**20 integers.
    for number in range(20):
        kind = type(f"M{number}", (BaseModel,), {"__annotations__": {"a": kind, "b": kind}, "__module__": __name__})
    with caplog.at_level(logging.WARNING, LOGGER):
        schema = schema_for(kind)
    assert len(schema["$defs"]) == 20
    assert [unnamed(record.getMessage(), "tool", str(MAX_INLINED)) for record in caplog.records] == [[]]


def test_a_schema_that_is_inlined_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        schema_for(Leg)
    assert caplog.records == []


def test_a_value_that_looks_like_a_schema_is_left_alone() -> None:
    looks = {"$ref": "#/$defs/Leg"}
    schema: Json = {
        "$defs": {"Leg": {"type": "integer"}},
        "properties": {"a": {"const": looks, "default": looks, "$ref": "#/$defs/Leg"}, "b": {"$ref": "#/$defs/Other"}},
    }
    assert inlined(schema) == (
        {"properties": {"a": {"type": "integer", "const": looks, "default": looks}, "b": {"$ref": "#/$defs/Other"}}},
        None,
    )


def test_the_size_of_a_schema_counts_each_copy() -> None:
    part: Json = {"é": [1, "a", None], "b": {}}
    assert encoded_size([part, part], {}) == len('[{"é":[1,"a",null],"b":{}},{"é":[1,"a",null],"b":{}}]'.encode())


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (dict[str, Any], True),
        (list[object], True),
        (dict, True),
        (Leg, False),
        (dict[str, int], False),
        (list[Row], False),
    ],
    ids=str,
)
def test_a_schema_is_open_if_a_value_may_hold_anything(annotation: object, expected: bool) -> None:
    assert is_open(schema_for(annotation)["properties"]["value"]) is expected


LOOKS: Json = {"$ref": "#/$defs/Step"}


class Pipeline(BaseModel):
    model_config = ConfigDict(json_schema_extra={"examples": [LOOKS], "const": LOOKS})

    first: dict[str, Any] = LOOKS


def test_data_that_looks_like_a_reference_stays_as_it_is() -> None:
    def run(
        step: dict[str, Any] = LOOKS,
        other: Annotated[Any, Field(json_schema_extra={"enum": [LOOKS], "const": LOOKS, "examples": [LOOKS]})] = None,
        nested: Annotated[Any, Field(json_schema_extra={"items": {"default": [LOOKS]}})] = None,
        pipeline: Pipeline | None = None,
        second: Pipeline | None = None,
    ) -> Pipeline: ...

    listed = Server("data").add_tool(run).model
    shown = listed.input_schema["properties"]
    assert shown["step"]["default"] == LOOKS
    assert [shown["other"][key] for key in ("enum", "const", "examples")] == [[LOOKS], LOOKS, [LOOKS]]
    assert shown["nested"]["items"] == {"default": [LOOKS]}
    assert listed.output_schema is not None
    for schema in (shown["pipeline"]["anyOf"][0], shown["second"]["anyOf"][0], listed.output_schema):
        assert (schema["properties"]["first"]["default"], schema["const"]) == (LOOKS, LOOKS)
    assert LOOKS == {"$ref": "#/$defs/Step"}
