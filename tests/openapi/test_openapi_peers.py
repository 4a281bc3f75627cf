"""Documents as they are: branches that overlap but for a discriminator, whole numbers, and the cost of many operations."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from recorded_api import Api, Json, document, operation, param, target

from trio_mcp.openapi import schemas
from trio_mcp.protocol.schema import json_schema

# discriminators

KIND: Json = {"type": "string"}
CAT: Json = {"type": "object", "required": ["kind"], "properties": {"kind": KIND, "name": {"type": "string"}}}
DOG: Json = {
    "type": "object",
    "required": ["kind", "barks"],
    "properties": {"kind": KIND, "barks": {"type": "boolean"}},
}
REFS: list[Json] = [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}]
MAPPING = {"cat": "#/components/schemas/Cat", "kitten": "Cat", "dog": "#/components/schemas/Dog"}


def animals(mapping: Json | None = None, *, composed: str = "oneOf", version: str = "3.0.3", **more: Any) -> Json:
    discriminator = {"propertyName": "kind", **({} if mapping is None else {"mapping": mapping})}
    animal = {composed: REFS, "discriminator": discriminator, **more}
    cats = {"schemas": {"Cat": CAT, "Dog": DOG, "Animal": animal}}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Animal"}}}
    paths = {
        "/run": {
            "post": {
                "operationId": "run",
                "requestBody": {"required": True, "content": content},
                "responses": {"200": {"description": "one", "content": content}},
            }
        }
    }
    return document(paths, components=cats) | {"openapi": version}


@pytest.mark.parametrize("version", ["3.0.3", "3.1.0"])
@pytest.mark.parametrize("composed", ["oneOf", "anyOf"])
@pytest.mark.parametrize(
    ("mapping", "body"),
    [
        (MAPPING, {"kind": "cat", "name": "Tom"}),
        (MAPPING, {"kind": "kitten"}),
        (MAPPING, {"kind": "dog", "barks": True}),
        (MAPPING, {"kind": "Dog", "barks": True}),
        (None, {"kind": "Cat", "barks": "no"}),
        ({"cat": "other.json"}, {"kind": "Cat"}),
    ],
)
async def test_the_discriminator_decides_among_branches_that_overlap(
    mapping: Json | None, body: Json, composed: str, version: str
) -> None:
    api = Api(lambda _: httpx2.Response(200, json=body))
    result = await api.call(animals(mapping, composed=composed, version=version), {"body": body})
    assert not result.is_error, result.text
    assert result.data == body
    assert json.loads(api.requests[-1].content) == body


@pytest.mark.parametrize(
    ("mapping", "body"),
    [
        (MAPPING, {"kind": "dog", "name": "Rex"}),
        (MAPPING, {"kind": "bird"}),
        (MAPPING, {"name": "Tom"}),
        (None, {"kind": "cat"}),
        ({"cat": "Dog", "Cat": "Dog"}, {"kind": "Cat"}),
    ],
)
async def test_a_body_that_fits_no_branch_that_is_meant_is_refused_and_nothing_is_sent(
    mapping: Json | None, body: Json
) -> None:
    api = Api()
    assert (await api.call(animals(mapping), {"body": body})).is_error
    assert api.requests == []


async def test_a_branch_that_names_its_values_itself_keeps_them_and_null_stays_null() -> None:
    own = {**CAT, "properties": {**CAT["properties"], "kind": {"type": "string", "enum": ["tom"]}}}
    source = animals(MAPPING, nullable=True)
    source["components"]["schemas"]["Cat"] = own
    api = Api(lambda _: httpx2.Response(200, content=b"null", headers={"content-type": "application/json"}))
    assert (await api.call(source, {"body": {"kind": "tom"}})).data is None
    assert (await api.call(source, {"body": {"kind": "cat"}})).is_error


@pytest.mark.parametrize("discriminator", [{}, {"propertyName": 5}, {"propertyName": "kind", "mapping": []}, "kind"])
def test_an_odd_discriminator_leaves_the_operation(discriminator: Any) -> None:
    source = animals(MAPPING)
    source["components"]["schemas"]["Animal"]["discriminator"] = discriminator
    assert [tool.name for tool in Api().server(source, strict=True).tools] == ["run"]


# whole numbers


async def test_whole_numbers_are_sent_as_such_wherever_they_are() -> None:
    parameters = [
        param("id", "path", required=True),
        param("page"),
        param("ids"),
        param("x-count", "header"),
        param("size", "cookie"),
    ]
    arguments: Any = {"id": 8650.0, "page": 2.0, "ids": [1.0, 2.5], "x-count": 3.0, "size": 7.0}
    sent = await Api().sent(operation(parameters, path="/p/{id}"), arguments)
    assert target(sent) == "/p/8650?page=2&ids=1&ids=2.5"
    assert (sent.headers["x-count"], sent.headers["cookie"]) == ("3", "size=7")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("application/json", '{"n":1,"f":1.5,"big":1e+300,"deep":[{"n":2}]}'),
        ("application/x-www-form-urlencoded", "n=1&f=1.5"),
    ],
)
async def test_whole_numbers_of_a_body_are_sent_as_such(kind: str, expected: str) -> None:
    body = {"required": True, "content": {kind: {"schema": {"type": "object", "properties": {"n": {}, "f": {}}}}}}
    value: Any = {"n": 1.0, "f": 1.5}
    if kind == "application/json":
        value |= {"big": 1e300, "deep": [{"n": 2.0}]}
    source = operation([], method="post", requestBody=body)
    sent = await Api().sent(source, {"body": value})
    assert sent.content.decode() == expected


# the cost of many operations


def many(operations: int) -> Json:
    """Operations that all use the same chain of schemas."""
    chain: Json = {
        f"S{number}": {
            "type": "object",
            "properties": {"next": {"$ref": f"#/components/schemas/S{number + 1}"}, "a": KIND},
        }
        for number in range(10)
    }
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}
    responses = {"200": {"description": "one", "content": content}}
    paths = {
        f"/{number}": {"post": {"requestBody": {"content": content}, "responses": responses}}
        for number in range(operations)
    }
    return document(paths, components={"schemas": {**chain, "S10": {"type": "object"}}})


def test_a_schema_is_checked_once_and_not_for_each_place_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[Any] = []
    compiled: list[bytes] = []
    check, init = json_schema.check_keywords, json_schema.Schema._compile  # noqa: SLF001

    def counting(schema: Any, what: str) -> None:
        checked.append(schema)
        check(schema, what)

    def compiling(self: json_schema.Schema, **options: bool) -> Any:
        compiled.append(b"")
        return init(self, **options)

    monkeypatch.setattr(schemas, "check_keywords", counting)
    monkeypatch.setattr(json_schema.Schema, "_compile", compiling)
    server = Api().server(many(30), strict=True)
    assert len(server.tools) == 30
    # The definitions once for each direction, and for each operation what is its own.
    assert len(checked) == 2 * 11 + 2 * 30
    assert sum("properties" in each and "a" in each["properties"] for each in checked) == 2 * 10
    assert compiled == []


async def test_a_schema_that_is_compiled_late_checks_arguments_and_responses() -> None:
    api = Api(lambda _: httpx2.Response(200, json={"next": {"a": 5}}))
    async with api.connected(many(1)) as client:
        (tool,) = await client.list_tools()
        assert (await client.call_tool(tool.name, {"body": {"next": {"next": {"a": 5}}}})).is_error
        assert api.requests == []
        assert "next.a" in (await client.call_tool(tool.name, {"body": {}})).text


def test_a_schema_of_valid_parts_that_is_over_a_limit_is_refused() -> None:
    large = {"properties": {str(number): {} for number in range(10_001)}}
    with pytest.raises(ValueError, match="10000"):
        json_schema.ValidSchema(large, 0)
    with pytest.raises(ValueError, match="MAX_PATTERN_WEIGHT"):
        json_schema.ValidSchema({"properties": {str(n): {"pattern": f"a{{{n}}}"} for n in range(900, 1000)}}, 10**6)
