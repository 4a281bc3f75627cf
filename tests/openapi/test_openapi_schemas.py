"""The schemas of a document as JSON Schema 2020-12."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from naming import unnamed
from recorded_api import Api, Json, document, operation, param

from trio_mcp.openapi import OpenApiLimits, OpenApiServer
from trio_mcp.openapi.parts import MAX_REFERENCES

OLD: list[tuple[Json, Json]] = [
    ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
    ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
    ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 0}),
    ({"type": "integer", "minimum": 0, "exclusiveMinimum": False}, {"type": "integer", "minimum": 0}),
    ({"maximum": 9, "exclusiveMaximum": True}, {"exclusiveMaximum": 9}),
    ({"type": "string", "example": "a"}, {"type": "string", "examples": ["a"]}),
    ({"type": "string", "format": "byte"}, {"type": "string", "format": "byte", "contentEncoding": "base64"}),
    ({"type": "object", "xml": {}, "externalDocs": {}, "x-mcp-header": "A"}, {"type": "object"}),
    ({"oneOf": [{"type": "string"}], "discriminator": {"propertyName": "a"}}, {"anyOf": [{"type": "string"}]}),
    ({"allOf": [{"type": "object"}], "nullable": True}, {"anyOf": [{"allOf": [{"type": "object"}]}, {"type": "null"}]}),
    ({"$ref": "#/components/schemas/A"}, {"type": "boolean"}),
    ({"$ref": "#/components/schemas/A", "nullable": True}, {"anyOf": [{"type": "boolean"}, {"type": "null"}]}),
    ({"$ref": "#/components/schemas/A", "description": "why"}, {"type": "boolean", "description": "why"}),
    ({"$ref": "#/components/schemas/A", "type": "string"}, {"type": "boolean"}),
    (
        {"items": {"type": "string", "nullable": True}, "type": "array"},
        {"type": "array", "items": {"type": ["string", "null"]}},
    ),
]

NEW: list[tuple[Json, Json]] = [
    ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
    ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "exclusiveMinimum": 0}),
    ({"type": "string", "nullable": True}, {"type": "string"}),
    ({"$ref": "#/components/schemas/A", "description": "why"}, {"type": "boolean", "description": "why"}),
    ({"const": {"$ref": "data"}}, {"const": {"$ref": "data"}}),
    ({"type": "string", "examples": {"not": "a list"}}, {"type": "string"}),
    ({"type": "string", "pattern": "^a+$"}, {"type": "string", "pattern": "^a+$"}),
    ({"type": "string", "pattern": "(?=a)b"}, {"type": "string"}),
    ({"$defs": {"B": {}}, "$id": "b", "$anchor": "c", "type": "string"}, {"type": "string"}),
    ({"type": "integer", "minimum": 0, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 0}),
    ({"type": "object", "required": ["a", "a"], "$recursiveAnchor": True}, {"type": "object", "required": ["a"]}),
    ({"$ref": "#/components/schemas/Deep/properties/a~1b%25"}, {"type": "number"}),
]


def argument_schema(schema: Json, version: str) -> Any:
    components = {"schemas": {"A": {"type": "boolean"}, "Deep": {"properties": {"a/b%": {"type": "number"}}}}}
    source = operation([param("a", schema=schema)]) | {"components": components, "openapi": version}
    (tool,) = Api().server(source, strict=True).tools
    properties = tool.model.input_schema["properties"]
    assert isinstance(properties, dict)
    return properties["a"]


@pytest.mark.parametrize(("schema", "expected"), OLD)
def test_a_schema_of_3_0_becomes_2020_12(schema: Json, expected: Json) -> None:
    assert argument_schema(schema, "3.0.3") == expected


@pytest.mark.parametrize(("schema", "expected"), NEW)
def test_a_schema_of_3_1_is_2020_12(schema: Json, expected: Json) -> None:
    assert argument_schema(schema, "3.1.0") == expected


def test_requests_have_no_properties_that_are_read_only_and_responses_none_that_are_write_only() -> None:
    pet = {
        "type": "object",
        "required": ["id", "secret", "name"],
        "properties": {
            "id": {"$ref": "#/components/schemas/Id"},
            "secret": {"type": "string", "writeOnly": True},
            "name": {"type": "string"},
        },
    }
    media = {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}
    source = operation(
        method="post",
        requestBody={"required": True, "content": media},
        responses={"200": {"description": "", "content": media}},
    )
    source["components"] = {"schemas": {"Pet": pet, "Id": {"type": "integer", "readOnly": True}}}
    (tool,) = Api().server(source).tools
    body: Any = tool.model.input_schema["properties"]["body"]  # type: ignore[index, call-overload]
    assert (list(body["properties"]), body["required"]) == (["secret", "name"], ["secret", "name"])
    output: Any = tool.model.output_schema
    assert (list(output["properties"]), output["required"]) == (["id", "name"], ["id", "name"])


def test_a_recursive_schema_keeps_its_definitions_and_is_named_in_the_report() -> None:
    source = operation([param("a", schema={"$ref": "#/components/schemas/Node"})])
    source["components"] = {"schemas": {"Node": {"properties": {"next": {"$ref": "#/components/schemas/Node"}}}}}
    server = Api().server(source)
    (tool,) = server.tools
    assert tool.model.input_schema["$defs"] == {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}}}
    assert "Node refers to itself" in server.report.taken[0].notes[0]


def test_two_definitions_with_one_name_stay_apart() -> None:
    source = operation(
        [param("a", schema={"$ref": "#/components/schemas/A"}), param("b", schema={"$ref": "#/components/x-other/A"})]
    )
    source["components"] = {"schemas": {"A": {"type": "string"}}, "x-other": {"A": {"type": "integer"}}}
    (tool,) = Api().server(source).tools
    assert tool.model.input_schema["properties"] == {"a": {"type": "string"}, "b": {"type": "integer"}}


UNUSABLE: list[tuple[Json, str]] = [
    ({"$ref": "other.yaml#/A"}, "leads out of the document"),
    ({"$ref": "https://evil.example/a.json"}, "leads out of the document"),
    ({"$ref": "file:///etc/passwd"}, "leads out of the document"),
    ({"$ref": "#/components/schemas/Missing"}, "leads to nothing"),
    ({"properties": {"a": {"$ref": "#/components/schemas/Broken"}}}, "leads out of the document"),
    ({"$dynamicRef": "#a"}, "dynamicRef"),
    ({"type": "file"}, "schema of its arguments"),
    ({"required": True}, "schema of its arguments"),
    ({"items": {"items": {"items": {"items": {"items": {"type": "string"}}}}}}, "nested"),
]


@pytest.mark.parametrize(("schema", "reason"), UNUSABLE)
def test_an_operation_with_a_schema_that_cannot_be_used_is_left_out_with_the_reason(schema: Json, reason: str) -> None:
    broken = {"properties": {"a": {"$ref": "#/components/schemas/Broken"}, "b": {"$ref": "b.json"}}}
    source = document(
        {
            "/a": {"get": {"parameters": [param("a", schema=schema)], "responses": {}}},
            "/b": {"get": {"parameters": [param("a", schema=schema)], "responses": {}}},
            "/c": {"get": {"responses": {}}},
        },
        components={"schemas": {"Broken": broken}},
    )
    server = Api().server(source, limits=OpenApiLimits(max_schema_depth=7))
    assert [tool.name for tool in server.tools] == ["get_c"]
    assert [reason in each.reason for each in server.report.left_out] == [True, True]


@pytest.mark.parametrize("count", [200, 3000])
def test_schemas_that_refer_to_each_other_too_deep_are_left_out(count: int) -> None:
    chain = {
        f"A{number}": {"properties": {"a": {"$ref": f"#/components/schemas/A{number + 1}"}}} for number in range(count)
    }
    parameter = param("a", schema={"$ref": "#/components/schemas/A0"})
    paths = {path: {"get": {"parameters": [parameter], "responses": {}}} for path in ("/a", "/b")}
    source = document({**paths, "/c": {"get": {"responses": {}}}}, components={"schemas": {**chain, f"A{count}": {}}})
    server = Api().server(source)
    assert server.report.tools == ("get_c",)
    assert len(server.report.left_out) == 2


def references(*names: str) -> Json:
    return {"properties": {name: {"$ref": f"#/components/schemas/{name}"} for name in names}}


def deeper(frames: int, then: Callable[[], OpenApiServer]) -> OpenApiServer:
    return deeper(frames - 1, then) if frames else then()


@pytest.mark.parametrize("frames", [0, 7, 23, 101])
def test_many_schemas_that_refer_to_each_other_are_read_at_every_depth_of_the_stack(frames: int) -> None:
    ring = {f"A{number}": references(f"A{(number + 1) % 300}", "A0") for number in range(300)}
    source = operation([param("a", schema=references("A0"))]) | {"components": {"schemas": ring}}
    (tool,) = deeper(frames, lambda: Api().server(source, strict=True)).tools
    definitions = tool.model.input_schema["$defs"]
    assert isinstance(definitions, dict)
    assert definitions.keys() == ring.keys()


def test_references_that_lead_to_themselves_alone_are_kept() -> None:
    ring = {name: {"$ref": f"#/components/schemas/{to}"} for name, to in (("A", "B"), ("B", "C"), ("C", "B"))}
    content = {"application/json": {"schema": ring["A"]}}
    source = operation(responses={"200": {"content": content}}) | {"components": {"schemas": ring}}
    (tool,) = Api().server(source, strict=True).tools
    assert tool.model.output_schema is not None


def test_a_chain_of_references_has_a_limit() -> None:
    names = [f"A{number}" for number in range(MAX_REFERENCES + 2)]
    chain: Json = {name: {"$ref": f"#/components/schemas/{to}"} for name, to in pairwise(names)} | {names[-1]: {}}
    paths = {
        f"/{count}": {"get": {"parameters": [param("a", schema=references(names[-1 - count]))], "responses": {}}}
        for count in (MAX_REFERENCES - 1, MAX_REFERENCES)
    }
    server = Api().server(document(paths, components={"schemas": chain}))
    assert [unnamed(each.reason, str(MAX_REFERENCES)) for each in server.report.left_out] == [[]]


class Compared(str):
    """A name that counts how often names are compared."""

    __slots__ = ()
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        Compared.comparisons += 1
        return str(self) == other

    __hash__ = str.__hash__


def test_each_required_name_is_compared_a_few_times_at_most() -> None:
    names = [Compared(f"n{number}") for number in range(5000)]
    (tool,) = Api().server(operation([param("a", schema={"type": "object", "required": names})]), strict=True).tools
    assert tool.model.input_schema["properties"] == {"a": {"type": "object", "required": names}}
    assert Compared.comparisons < 20 * len(names)


def test_thousands_of_definitions_with_names_that_become_one_stay_apart() -> None:
    schemas = {chr(0x2200 + number): {"const": number} for number in range(2000)}
    source = operation([param("a", schema=references(*schemas))]) | {"components": {"schemas": schemas}}
    (tool,) = Api().server(source, strict=True).tools
    assert tool.model.input_schema["properties"] == {"a": {"properties": schemas}}


def test_thousands_of_parameters_whose_names_become_one_have_one_argument_each() -> None:
    source = operation([param(f"a{chr(0x2200 + number)}") for number in range(2000)])
    (tool,) = Api().server(source, strict=True).tools
    properties = tool.model.input_schema["properties"]
    assert isinstance(properties, dict)
    assert len(properties) == 2000


LISTS_OF_LISTS: Json = {"A": {"type": "array", "items": {"$ref": "#/components/schemas/A"}}}
DOUBLED: Json = {
    f"A{n or ''}": {"anyOf": [{"$ref": f"#/components/schemas/A{n + 1}", "title": each} for each in "ab"]}
    for n in range(40)
} | {"A40": {"type": "string"}}


@pytest.mark.parametrize("schemas", [LISTS_OF_LISTS, DOUBLED], ids=["to itself", "doubled"])
def test_a_form_is_searched_for_files_within_a_limit(schemas: Json) -> None:
    content = {"multipart/form-data": {"schema": {"type": "object", **references("A")}}}
    source = operation(method="post", requestBody={"content": content}) | {"components": {"schemas": schemas}}
    assert Api().server(source).report.left_out == ()


def test_an_operation_with_a_wrong_output_schema_has_none_and_the_report_mentions_it() -> None:
    for schema in ({"$ref": "other.json"}, {"type": "nonsense"}):
        content = {"application/json": {"schema": schema}}
        server = Api().server(operation(responses={"200": {"description": "", "content": content}}))
        assert server.tools[0].model.output_schema is None
        assert "no output schema" in server.report.taken[0].notes[0]


OUTPUTS: list[tuple[Json, Any]] = [
    ({"200": "object"}, "object"),
    ({"200": "array"}, "wrapped"),
    ({"200": "object", "404": "array"}, "object"),
    ({"2XX": "object"}, "object"),
    ({"200": "object", "201": "object"}, "object"),
    ({"200": "object", "201": "array"}, "wrapped"),
    ({"200": "object", "204": None}, None),
    ({"default": "object"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("responses", "expected"), OUTPUTS)
def test_the_output_schema_holds_for_every_success(responses: Json, expected: str | None) -> None:
    parts = {
        status: {"description": "", **({"content": {"application/json": {"schema": {"type": kind}}}} if kind else {})}
        for status, kind in responses.items()
    }
    output: Any = Api().server(operation(responses=parts)).tools[0].model.output_schema
    found = None if output is None else "wrapped" if "result" in output.get("properties", {}) else output["type"]
    assert found == expected
