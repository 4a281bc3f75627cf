"""References in schemas that are read, not validated with."""

from __future__ import annotations

import pytest

from trio_mcp.protocol.schema.references import dereference
from trio_mcp.types import JsonObject

ROOT: JsonObject = {
    "$defs": {
        "Word": {"type": "string", "title": "Word"},
        "Name": {"$ref": "#/$defs/Word", "title": "Name"},
        "a/b~c": {"type": "integer"},
        "Loop": {"$ref": "#/$defs/Back"},
        "Back": {"$ref": "#/$defs/Loop"},
        "Self": {"$ref": "#/$defs/Self"},
    },
    "list": [{"type": "null"}],
}


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"type": "null"}, {"type": "null"}),
        ({"$ref": "#/$defs/Word"}, {"type": "string", "title": "Word"}),
        ({"$ref": "#/$defs/Word", "title": "Mine"}, {"type": "string", "title": "Mine"}),
        ({"$ref": "#/$defs/Name", "default": ""}, {"type": "string", "title": "Name", "default": ""}),
        ({"$ref": "#/$defs/a~1b~0c"}, {"type": "integer"}),
        ({"$ref": "#/%24defs/Word"}, {"type": "string", "title": "Word"}),
        ({"$ref": "#"}, ROOT),
        ({"$ref": "#/$defs/Loop"}, None),
        ({"$ref": "#/$defs/Self"}, None),
        ({"$ref": "#/$defs/None"}, None),
        ({"$ref": "#/$defs/Word/type/x"}, None),
        ({"$ref": "#/list"}, None),
        ({"$ref": "#Word"}, None),
        ({"$ref": "https://example.com/schema.json"}, None),
    ],
)
def test_a_reference_leads_within_the_schema_or_nowhere(schema: JsonObject, found: JsonObject | None) -> None:
    before = repr((schema, ROOT))
    assert dereference(schema, ROOT) == found
    assert repr((schema, ROOT)) == before


@pytest.mark.parametrize(
    "root",
    [
        {"$defs": ["x"], "properties": {"b": True}},
        {"properties": {"b": "oops"}},
        {"properties": {"b": {"properties": None}}},
        {"$defs": {"a": {"$id": 5, "b": {}}}},
    ],
)
@pytest.mark.parametrize("reference", ["#Seat", "#/$defs/a/b"])
def test_a_malformed_schema_of_a_peer_leads_nowhere(root: JsonObject, reference: str) -> None:
    assert dereference({"$ref": reference}, root) in (None, {})
