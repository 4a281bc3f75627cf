"""`Mcp-Param-*`: which annotations are legal, what a client sends, and what a server accepts."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, strategies as st
from naming import naming, unnamed

from trio_mcp.errors import RemoteProtocolError
from trio_mcp.protocol.http.headers import MAX_MIRRORED, ParameterHeaders
from trio_mcp.types import JsonObject, JsonValue

STRING: JsonObject = {"type": "string", "x-mcp-header": "Region"}


def schema_of(**properties: JsonValue) -> JsonObject:
    return {"type": "object", "properties": dict(properties)}


def headers_of(kind: JsonValue) -> ParameterHeaders:
    return ParameterHeaders.of(schema_of(it={"type": kind, "x-mcp-header": "It"}))


def illegal(schema: JsonObject) -> str:
    with pytest.raises(ValueError) as caught:
        ParameterHeaders.of(schema)
    return str(caught.value)


def refusal(headers: dict[str, str], arguments: JsonObject, of: ParameterHeaders | None = None) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        (of or headers_of("string")).check(headers, arguments)
    assert caught.value.code == -32020
    return str(caught.value)


# Annotations


def test_a_schema_without_annotations_has_no_headers() -> None:
    none = ParameterHeaders.of(schema_of(region={"type": "string"}))
    assert not none
    assert none == ParameterHeaders()
    assert none.headers({"region": "eu"}) == {}
    none.check({"mcp-param-region": "us"}, {"region": "eu"})


@pytest.mark.parametrize("kind", ["string", "integer", "boolean", ["string", "null"], ["null", "integer"]])
def test_the_primitive_types_have_headers(kind: JsonValue) -> None:
    assert [parameter.header for parameter in headers_of(kind).parameters] == ["mcp-param-it"]


NO_TYPES: list[JsonValue] = ["number", "object", "null", None, ["string", "integer"], ["null"], [["string"]], {}, 3]
NO_NAMES: list[JsonValue] = ["", "My Region", "Region:Primary", "Région", "a\tb", "a\n", "(a)", "a/b", None, 3, ["a"]]


@pytest.mark.parametrize(
    "annotated",
    [
        {"x-mcp-header": "It"},
        *[{"type": kind, "x-mcp-header": "It"} for kind in NO_TYPES],
        *[{"type": "string", "x-mcp-header": name} for name in NO_NAMES],
    ],
    ids=str,
)
def test_an_annotation_needs_a_primitive_type_and_a_token_for_its_name(annotated: JsonObject) -> None:
    assert "inputSchema.properties.it.x-mcp-header" in illegal(schema_of(it=annotated))


def test_a_long_name_is_refused() -> None:
    assert "128" in illegal(schema_of(it={"type": "string", "x-mcp-header": "x" * 129}))


def test_every_character_of_a_token_is_accepted() -> None:
    name = "!#$%&'*+-.^_`|~09azAZ"
    headers = ParameterHeaders.of(schema_of(it={"type": "string", "x-mcp-header": name}))
    assert headers.headers({"it": "x"}) == {f"mcp-param-{name.lower()}": "x"}


@pytest.mark.parametrize("second", ["Region", "REGION", "region"])
def test_a_name_occurs_once_whatever_its_case(second: str) -> None:
    schema = schema_of(one=STRING, two=schema_of(three={"type": "string", "x-mcp-header": second}))
    assert "inputSchema.properties.two.properties.three" in illegal(schema)


ONE_SCHEMA = (
    "items not if then else additionalProperties propertyNames contains contentSchema"
    " unevaluatedProperties unevaluatedItems additionalItems"
)
SEVERAL_SCHEMAS = "items prefixItems oneOf anyOf allOf"
NAMED_SCHEMAS = "$defs definitions patternProperties dependentSchemas dependencies"


@pytest.mark.parametrize(
    ("keyword", "holds"),
    [
        *[(keyword, STRING) for keyword in ONE_SCHEMA.split()],
        *[(keyword, [schema_of(a=STRING)]) for keyword in SEVERAL_SCHEMAS.split()],
        *[(keyword, {"a": schema_of(a=STRING)}) for keyword in NAMED_SCHEMAS.split()],
    ],
)
def test_an_annotation_is_reached_through_properties_alone(keyword: str, holds: JsonValue) -> None:
    assert f"inputSchema.{keyword}" in illegal({"type": "object", keyword: holds})
    assert f"properties.in.{keyword}" in illegal(schema_of(**{"in": {keyword: holds}}))


def test_the_schema_itself_is_no_property() -> None:
    assert "properties" in illegal({"type": "string", "x-mcp-header": "It"})


def test_data_in_a_schema_is_no_annotation() -> None:
    data: JsonObject = {"x-mcp-header": "no", "type": "object"}
    schema = schema_of(a={"type": "object", "default": data, "const": data, "enum": [data], "examples": [data]})
    assert not ParameterHeaders.of(schema)


def test_a_property_may_be_called_like_the_annotation() -> None:
    schema = schema_of(**{"x-mcp-header": {"type": "string", "x-mcp-header": "Odd"}})
    assert ParameterHeaders.of(schema).headers({"x-mcp-header": "v"}) == {"mcp-param-odd": "v"}


def test_there_is_a_limit_of_mirrored_parameters() -> None:
    def many(count: int) -> JsonObject:
        return schema_of(**{f"p{n}": {"type": "string", "x-mcp-header": f"P{n}"} for n in range(count)})

    assert len(ParameterHeaders.of(many(MAX_MIRRORED)).parameters) == MAX_MIRRORED
    assert "MAX_MIRRORED" in illegal(many(MAX_MIRRORED + 1))


def test_a_deep_schema_is_read_without_recursion() -> None:
    schema: JsonValue = STRING
    for _ in range(5000):
        schema = schema_of(a=schema)
    assert len(ParameterHeaders.of(schema).parameters[0].path) == 5000


# What a client sends


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("eu-west-1", "eu-west-1"),
        ("", ""),
        ("é", "=?base64?w6k=?="),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (-42, "-42"),
        (2**53 - 1, "9007199254740991"),
        (10.0, "10"),
    ],
)
def test_a_value_becomes_a_header(value: JsonValue, sent: str) -> None:
    headers = headers_of("string")
    assert headers.headers({"it": value}) == {"mcp-param-it": sent}
    headers.check({"mcp-param-it": sent}, {"it": value})


@pytest.mark.parametrize("arguments", [{}, {"it": None}, {"it": 1.5}, {"it": []}, {"it": {"a": 1}}, {"other": "x"}])
def test_no_value_becomes_no_header(arguments: JsonObject) -> None:
    assert headers_of("string").headers(arguments) == {}
    headers_of("string").check({}, arguments)
    assert unnamed(refusal({"mcp-param-it": ""}, arguments), "argument it") == []


@pytest.mark.parametrize("value", [2**53, -(2**53), 1e300])
def test_an_integer_that_a_double_cannot_hold_is_refused(value: JsonValue) -> None:
    with pytest.raises(ValueError, match=naming("argument it")):
        headers_of("integer").headers({"it": value})
    assert unnamed(refusal({"mcp-param-it": str(value)}, {"it": value}), "argument it") == []


def test_a_nested_argument_is_found_by_its_path() -> None:
    headers = ParameterHeaders.of(schema_of(where=schema_of(region=STRING)))
    assert headers.headers({"where": {"region": "eu"}}) == {"mcp-param-region": "eu"}
    for arguments in ({"where": None}, {"where": "eu"}, {"where": {}}, {"region": "eu"}, {"where": ["region"]}):
        assert headers.headers(arguments) == {}
    assert "where.region" in refusal({}, {"where": {"region": "eu"}}, headers)


# What a server accepts


@given(st.text() | st.booleans() | st.integers(1 - 2**53, 2**53 - 1) | st.none())
def test_what_a_client_sends_a_server_accepts(value: JsonValue) -> None:
    headers = headers_of("string")
    headers.check(headers.headers({"it": value}), {"it": value})


@given(st.text(), st.text())
def test_what_differs_is_refused(one: str, other: str) -> None:
    headers = headers_of("string")
    if one != other:
        refusal(headers.headers({"it": one}), {"it": other})


def test_a_missing_header_is_refused() -> None:
    assert unnamed(refusal({}, {"it": "eu"}), "header mcp-param-it", "missing") == []


@pytest.mark.parametrize("sent", ["EU", "e u", "eu,eu", "=?base64?RVU=?=", "=?BASE64?ZXU=?=", "=?base64?ZXU="])
def test_another_value_is_refused(sent: str) -> None:
    assert "mcp-param-it says" in refusal({"mcp-param-it": sent}, {"it": "eu"})


def test_blanks_round_a_header_do_not_count() -> None:
    headers_of("string").check({"mcp-param-it": " \teu "}, {"it": "eu"})
    headers_of("integer").check({"mcp-param-it": " 42 "}, {"it": 42})


@pytest.mark.parametrize("sent", ["42", "42.0", "042", "4.2e1", "=?base64?NDI=?="])
def test_integers_are_compared_as_numbers(sent: str) -> None:
    headers_of("integer").check({"mcp-param-it": sent}, {"it": 42})
    headers_of("integer").check({"mcp-param-it": sent}, {"it": 42.0})


ANOTHER_NUMBER = ["43", "", "NaN", "0x2A", "4_2", "٤٢", "42.", "1e999999999", "9" * 10_000, "true"]


@pytest.mark.parametrize(
    ("sent", "value"), [*[(sent, 42) for sent in ANOTHER_NUMBER], ("1", True), ("True", True), ("true", 1)]
)
def test_another_number_or_boolean_is_refused(sent: str, value: JsonValue) -> None:
    for kind in ("integer", "boolean"):
        refusal({"mcp-param-it": sent}, {"it": value}, headers_of(kind))


def test_a_refusal_shows_only_the_beginning_of_a_value() -> None:
    assert len(refusal({"mcp-param-it": "x" * 9000}, {"it": "y" * 9000})) < 400


def test_a_schema_that_is_deep_and_wide_costs_no_more_than_its_size() -> None:
    schema: JsonObject = {"properties": {f"p{number}": {} for number in range(10_000)}}
    for _ in range(25):
        schema = {"properties": {"a" * 64: schema}}
    tracemalloc.start()
    try:
        assert not ParameterHeaders.of(schema)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
