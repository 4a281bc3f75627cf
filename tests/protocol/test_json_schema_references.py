"""What a reference within a schema may lead to."""

from __future__ import annotations

import pytest

from trio_mcp.protocol.schema.json_schema import Schema
from trio_mcp.types import JsonObject, JsonValue

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def flaw(schema: JsonObject) -> str:
    with pytest.raises(ValueError) as caught:
        Schema.compile(schema, "inputSchema")
    return str(caught.value)


@pytest.mark.parametrize(
    "hidden",
    [{"minimum": "a"}, {"type": "nonsense"}, {"properties": []}, {"pattern": 5}, {"$ref": 5}, {"pattern": "("}, [1], 5],
    ids=str,
)
def test_what_only_a_reference_makes_a_schema_must_be_one(hidden: JsonValue) -> None:
    flaw({"const": hidden, "$ref": "#/const"})
    flaw({"const": {"x": {"allOf": [{"$ref": "#/const/y"}]}, "y": hidden}, "$ref": "#/const/x"})


def test_a_schema_at_a_place_of_no_keyword_may_be_referred_to() -> None:
    schema: JsonObject = {"components": {"age": {"type": "integer", "maximum": 9}}, "$ref": "#/components/age"}
    assert Schema.compile(schema, "it").check(5) is None
    assert Schema.compile(schema, "it").check("5") is not None


def test_a_part_of_a_meta_schema_that_is_no_schema_is_refused() -> None:
    flaw({"$ref": f"{DRAFT_7}/properties"})
    flaw({"$ref": f"{DRAFT_2020}#/title"})


def test_a_schema_within_of_another_dialect_is_refused_before_it_is_read_as_one() -> None:
    assert "dialect" in flaw({"$defs": {"a": {"$schema": "http://json-schema.org/draft-04/schema#", "id": 5}}})
