"""Schemas from untrusted peers: the values that they reject, the schemas that are rejected, and that every check ends."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from unittest.mock import Mock

import pytest
from hypothesis import given, strategies as st
from json_strategies import json_values
from naming import unnamed

from trio_mcp.protocol.json_limits import DEFAULT_LIMITS
from trio_mcp.protocol.schema import compiled
from trio_mcp.protocol.schema.json_schema import Schema
from trio_mcp.protocol.schema.references import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_STEPS,
    MAX_SUBSCHEMAS,
    QUICK_STEPS,
    QUICK_VALUES,
    STEPS_WITHOUT_PAUSE,
    CheckTooExpensive,
)
from trio_mcp.types import JsonObject, JsonValue

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def problems(schema: JsonObject | bool, value: JsonValue, root: str = "") -> str | None:
    return Schema.compile(schema, "inputSchema").check(value, root)


def flaw(schema: JsonValue) -> str:
    with pytest.raises(ValueError) as caught:
        Schema.compile(schema, "inputSchema")  # type: ignore[arg-type]
    assert str(caught.value).startswith("inputSchema: ")
    return str(caught.value)


def nested(depth: int) -> JsonObject:
    schema: JsonObject = {}
    for _ in range(depth):
        schema = {"not": schema}
    return schema


# What a schema says about values

GOOD_AND_BAD: list[tuple[JsonObject | bool, JsonValue, JsonValue]] = [
    ({"type": "integer"}, 10.0, 1.5),
    ({"type": ["string", "null"]}, None, 1),
    ({"const": {"a": 1}}, {"a": 1.0}, {"a": True}),
    ({"enum": [1, "a"]}, "a", "b"),
    ({"multipleOf": 0.5}, 1.5, 1.2),
    ({"minLength": 2, "maxLength": 3}, "éé", "é"),
    ({"required": ["a"]}, {"a": None}, {}),
    ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1]),
    ({"contains": {"const": 1}, "maxContains": 1}, [0, 1], [1, 1]),
    ({"propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
    ({"dependentSchemas": {"a": {"required": ["b"]}}}, {"b": 1}, {"a": 1}),
    ({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"minimum": 1}}, 1, ""),
    ({"oneOf": [{"minimum": 1}, {"maximum": 1}]}, 2, 1),
    ({"not": {"type": "string"}}, 1, "a"),
    ({"$defs": {"a": {"$anchor": "here", "type": "string"}}, "$ref": "#here"}, "a", 1),
    ({"$id": "https://x.test/a", "$defs": {"b": {"$id": "b", "type": "string"}}, "$ref": "b"}, "a", 1),
    ({"$ref": DRAFT_2020}, {"type": "string"}, {"type": "strin"}),
    ({"$dynamicAnchor": "n", "additionalProperties": {"$dynamicRef": "#n"}, "type": "object"}, {"a": {}}, {"a": 1}),
    ({"pattern": "^a"}, "ab", "ba"),
    ({"patternProperties": {"^x": {"type": "string"}}}, {"x": "a", "y": 1}, {"xy": 1}),
    ({"patternProperties": {"^x": True}, "properties": {"y": True}, "additionalProperties": False}, {"x": 1}, {"z": 1}),
    ({"additionalProperties": {"type": "string"}}, {"a": "b"}, {"a": 1}),
    ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}], [1, 1.0]),
    ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"a": 1}], [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]),
    ({"maxItems": 1, "uniqueItems": False}, [1], [1, 1]),
    ({"$schema": DRAFT_7, "items": [{"type": "string"}], "additionalItems": False}, ["a"], ["a", "b"]),
    ({"$schema": DRAFT_7, "definitions": {"a": {"type": "string"}}, "$ref": "#/definitions/a", "minLength": 9}, "a", 1),
    ({"$schema": DRAFT_2020 + "#", "type": "string"}, "a", 1),
    ({"components": {"age": {"type": "integer", "maximum": 9}}, "$ref": "#/components/age"}, 5, "5"),
    (
        {"properties": {"in": {"items": {"$ref": "#"}}}, "minProperties": 1},
        {"in": [{"in": []}]},
        {"in": [{"in": [{}]}]},
    ),
    ({"format": "email"}, "no", ...),  # type: ignore[list-item]
    (True, [], ...),  # type: ignore[list-item]
    (False, ..., []),  # type: ignore[list-item]
]


@pytest.mark.parametrize(("schema", "good", "bad"), GOOD_AND_BAD, ids=[json.dumps(row[0])[:60] for row in GOOD_AND_BAD])
def test_a_value_fits_a_schema_or_has_a_problem(schema: JsonObject, good: JsonValue, bad: JsonValue) -> None:
    assert good is ... or problems(schema, good) is None
    assert bad is ... or problems(schema, bad) is not None


OPEN: JsonObject = {"properties": {"a": True}}


@pytest.mark.parametrize(
    "around",
    [
        {"properties": {"a": True}},
        {"patternProperties": {"^a$": True}},
        {"allOf": [OPEN]},
        {"anyOf": [{"required": ["zz"]}, OPEN]},
        {"oneOf": [False, OPEN]},
        {"if": OPEN},
        {"if": {"required": ["a"]}, "then": OPEN},
        {"if": {"required": ["zz"]}, "else": OPEN},
        {"dependentSchemas": {"a": OPEN}},
        {"$ref": "#/$defs/open"},
        {"$dynamicRef": "#open"},
        {"allOf": [{"$ref": "#/$defs/open"}]},
        {"allOf": [{"$ref": "https://x.test/resource"}]},
    ],
)
def test_what_another_keyword_saw_is_evaluated(around: JsonObject) -> None:
    resource: JsonObject = {
        "$id": "https://x.test/resource",
        "$defs": {"a": {"$id": "inner", "allOf": [{"$ref": "#/$defs/b"}], "$defs": {"b": OPEN}}},
        "allOf": [{"$ref": "inner"}],
    }
    definitions: JsonObject = {"open": {**OPEN, "$dynamicAnchor": "open"}, "resource": resource}
    schema: JsonObject = {**around, "$defs": definitions, "unevaluatedProperties": False}
    assert problems(schema, {"a": 1}) is None
    assert unnamed(problems(schema, {"a": 1, "b": 1}) or "", "'b'") == []


def test_a_schema_that_does_not_hold_has_evaluated_nothing() -> None:
    schema: JsonObject = {
        "anyOf": [{**OPEN, "required": ["zz"]}, True],
        "not": {"not": OPEN},
        "unevaluatedProperties": False,
    }
    assert problems(schema, {"a": 1}) is not None


def test_members_that_are_left_may_have_a_schema() -> None:
    schema: JsonObject = {**OPEN, "unevaluatedProperties": {"type": "string"}}
    assert problems(schema, {"a": 1, "b": "x"}) is None
    assert problems(schema, {"b": 1}) == "b: 1 is not of type 'string'"
    assert problems({"allOf": [schema], "unevaluatedProperties": False}, {"b": "x"}) is None


def test_items_that_are_left_are_unevaluated() -> None:
    schema: JsonObject = {
        "allOf": [{"prefixItems": [True]}],
        "contains": {"type": "string"},
        "unevaluatedItems": {"type": "null"},
    }
    assert problems(schema, [1, "a", None]) is None
    assert problems(schema, [1, "a", 2]) == "[2]: 2 is not of type 'null'"
    assert problems({"allOf": [{"items": True}], "unevaluatedItems": False}, [1]) is None


# Reported problems


def test_the_first_problems_are_reported_with_their_paths() -> None:
    schema: JsonObject = {"properties": {"rows": {"items": {"properties": {"price": {"type": "number"}}}}}}
    value: JsonValue = {"rows": [{"price": 1}, *[{"price": "x"}] * 9]}
    problem = problems(schema, value, "arguments")
    assert problem is not None
    assert problem.startswith("arguments.rows[1].price: 'x' is not of type 'number'; arguments.rows[2].price")
    assert len(problem.split("; ")) == 5
    assert problems({"type": "string"}, 1) == "the value: 1 is not of type 'string'"


@pytest.mark.parametrize("value", ["x" * 100_000, ["x"] * 100_000, {"x" * 100_000: 1}])
def test_a_large_value_is_not_repeated(value: JsonValue) -> None:
    problem = problems({"type": "number", "additionalProperties": False, "maxItems": 1, "maxLength": 1}, value)
    assert problem is not None
    assert len(problem) < 600
    assert "\n" not in problem


# Values that are not schemas


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ([], "an object or a boolean, not list"),
        (None, "not NoneType"),
        ({"type": "strin"}, "schema.type: 'strin' is not"),
        ({"properties": {"a": {"minLength": -1}}}, "schema.properties.a.minLength"),
        ({"properties": []}, "schema.properties"),
        ({"required": [{}] * 3}, "schema.required"),
        ({"$schema": "https://x.test/schema"}, "the dialect 'https://x.test/schema' is not known"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, "is not known; these are"),
        ({"$schema": 3}, "the dialect '3' is not known"),
        ({"$defs": {"a": {"$id": "b", "$schema": DRAFT_7}}}, "another dialect"),
        ({"const": float("nan")}, "schema.const is nan"),
        ({"pattern": "("}, "the pattern '(' is refused"),
        ({"pattern": "(?=a)"}, "look-around"),
        ({"pattern": r"(a)\1"}, "backreferences"),
        ({"patternProperties": {"(?!a)": True}}, "look-around"),
        ({"pattern": r"\p{L}{1000}"}, "is too large"),
        ({"allOf": [{"pattern": f"a{{900}}{n}"} for n in range(50)]}, "MAX_PATTERN_WEIGHT"),
        ({"const": "x" * MAX_BYTES}, f"the limit is {MAX_BYTES}"),
        (nested(MAX_DEPTH), f"the limit is {MAX_DEPTH}"),
        ({"$defs": {"a": {"$schema": "http://json-schema.org/draft-04/schema#", "id": 5}}}, "dialect"),
        ({"$ref": f"{DRAFT_7}/properties"}, "an object is not of type"),
        ({"$ref": f"{DRAFT_2020}#/title"}, "is not of type"),
    ],
)
def test_an_invalid_schema_is_rejected(schema: JsonValue, reason: str) -> None:
    assert reason in flaw(schema)


def test_the_limits_are_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    Schema.compile(nested(MAX_DEPTH - 1), "it")
    monkeypatch.setattr(compiled, "MAX_SUBSCHEMAS", 10)
    Schema.compile({"allOf": [{"title": "at the limit"}] * 9}, "it")
    assert "10 schemas" in flaw({"allOf": [{"title": "over the limit"}] * 10})
    assert MAX_SUBSCHEMAS == 10_000


REFERENCES_OUT = """
https://x.test/schema http://127.0.0.1:9/x file:///etc/passwd other.json
#/$defs/none #none #/% #/properties/a/minimum/x
"""


@pytest.mark.parametrize("reference", REFERENCES_OUT.split())
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_reference_out_of_the_schema_is_refused_and_never_fetched(
    keyword: str, reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("urllib.request.urlopen", pytest.fail)
    assert unnamed(flaw({"properties": {"a": {"minimum": 5, keyword: reference}}}), keyword, repr(reference)) == []


@pytest.mark.parametrize(
    "hidden",
    [{"minimum": "a"}, {"type": "nonsense"}, {"properties": []}, {"pattern": 5}, {"$ref": 5}, {"pattern": "("}, [1], 5],
    ids=str,
)
def test_what_only_a_reference_makes_a_schema_must_be_one(hidden: JsonValue) -> None:
    assert flaw({"const": hidden, "$ref": "#/const"})
    assert flaw({"const": {"x": {"allOf": [{"$ref": "#/const/y"}]}, "y": hidden}, "$ref": "#/const/x"})


# What is kept


def test_an_equal_schema_is_compiled_once() -> None:
    first, equal, other = (Schema.compile({"title": title}, title) for title in ("once", "once", "twice"))
    assert first is equal
    assert first is not other


def test_what_happens_to_a_schema_later_changes_nothing() -> None:
    mine: JsonObject = {"type": "string", "title": "mine"}
    schema = Schema.compile(mine, "it")
    mine["type"] = "number"
    assert schema.check("a") is None


def test_jsonschema_is_loaded_by_the_first_schema_and_not_before() -> None:
    script = "import sys; from trio_mcp.protocol.schema import json_schema; assert 'jsonschema' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)


# What attacks cost


def doubling(depth: int, leaf: str) -> JsonObject:
    levels: JsonObject = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(depth)}
    return {"$defs": {**levels, f"l{depth}": {"type": leaf}}, "$ref": "#/$defs/l0"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (doubling(30, "null"), None),
        ({"unevaluatedProperties": False, **doubling(30, "object")}, {"a": 1}),
        ({"items": {"enum": [*range(20_000)]}}, [0] * 20_000),
        ({"uniqueItems": True}, [[n] for n in range(400_000)]),
        ({"items": {"pattern": "[01]*1[01]{900}$"}}, ["01" * 2000] * 1000),
    ],
    ids=["doubling", "doubling evaluated", "enum", "unique", "pattern"],
)
def test_what_costs_too_much_is_a_problem(schema: JsonObject, value: JsonValue) -> None:
    assert unnamed(problems(schema, value, "it") or "", "it", f"{MAX_STEPS} steps") == []


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$dynamicAnchor": "a", "$dynamicRef": "#a"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$schema": DRAFT_7, "allOf": [{"$ref": "#"}]},
        {"unevaluatedProperties": False, "$ref": "#"},
    ],
)
def test_a_schema_that_refers_to_itself_without_an_end_is_a_problem(schema: JsonObject) -> None:
    assert unnamed(problems(schema, {"a": 1}) or "", "schema", "itself") == []


def chain(count: int, link: Callable[[JsonObject], JsonObject]) -> JsonObject:
    levels = {f"l{n}": link({"$ref": f"#/$defs/l{n + 1}"}) for n in range(count)}
    return {"$defs": {**levels, f"l{count}": {"type": "object"}}, "$ref": "#/$defs/l0"}


LINKS: list[Callable[[JsonObject], JsonObject]] = [
    lambda inner: {"not": inner},
    lambda inner: {"if": inner, "then": True},
    lambda inner: {"oneOf": [True, inner]},
    lambda inner: {"oneOf": [inner]},
    lambda inner: {"anyOf": [inner]},
    lambda inner: {"properties": {"a": True}, "allOf": [inner], "unevaluatedProperties": False},
    lambda inner: inner,
]


def deeper(frames: int, then: Callable[[], str | None]) -> str | None:
    return deeper(frames - 1, then) if frames else then()


@pytest.mark.parametrize("link", LINKS, ids=range(len(LINKS)))
def test_a_chain_of_references_that_is_too_long_is_the_same_problem_at_every_depth_of_the_stack(
    link: Callable[[JsonObject], JsonObject],
) -> None:
    schema = Schema.compile(chain(260, link), "it")
    found = {deeper(frames, lambda: schema.check({"a": 1}, "value")) for frames in range(60)}
    assert [unnamed(each or "", "value", "too deep") for each in found] == [[]]


def test_a_panic_of_the_library_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    schema = Schema.compile({"title": "panics", "type": "object"}, "it")
    for raised, caught in ((panic, False), (KeyboardInterrupt, True)):
        monkeypatch.setattr(compiled, "abbreviated", Mock(side_effect=raised))
        with pytest.raises(KeyboardInterrupt) if caught else contextlib.nullcontext():
            assert unnamed(schema.check({}, "value") or "", "value", "too deep") == []


def test_a_value_as_deep_as_a_message_may_be_is_checked_by_a_recursive_schema() -> None:
    node: JsonObject = {"properties": {"a": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["a"]}
    value: JsonValue = None
    for _ in range(DEFAULT_LIMITS.max_depth):
        value = {"a": value}
    assert problems({"$defs": {"node": node}, "$ref": "#/$defs/node"}, value) is None


def test_a_pattern_that_backtracks_elsewhere_ends_here() -> None:
    assert problems({"pattern": "^(a+)+$"}, "a" * 50_000 + "b") is not None
    assert problems({"patternProperties": {"^(a+)+$": False}}, {"a" * 5_000 + "b": 1}) is None


def test_many_objects_are_compared_in_one_go() -> None:
    assert problems({"uniqueItems": True}, [{"n": n} for n in range(20_000)]) is None
    assert flaw({"required": [{"n": n} for n in range(10_000)]})


def test_a_number_beyond_every_double_is_a_problem_at_most() -> None:
    problems({"multipleOf": 0.1}, 10**315)
    problems({"minimum": 0.1}, 10**315)


# Patterns mean what ECMA-262 means


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d$", "1", "\u0661"),
        (r"^\w$", "_", "é"),
        (r"^\D\W$", "é!", "1!"),
        (r"^[\w-]+$", "a-b", "a b"),
        (r"^[^\d]$", "a", "1"),
        (r"^[[&~]+$", "[&~", "a"),
        (r"^\/\u0041\-$", "/A-", "/B-"),
        (r"^a$", "a", "a\n"),
        (r"^\\d$", "\\d", "1"),
        (r"^\p{L}{1,50}$", "é", "1"),
        (r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", "01234567-89ab-cdef-0123-456789abcdef", "x"),
        (r"^.{1,255}$", "x", ""),
    ],
)
def test_a_pattern_is_read_as_ecmascript(pattern: str, good: str, bad: str) -> None:
    assert problems({"pattern": pattern}, good) is None
    assert problems({"pattern": pattern}, bad) is not None


@given(json_values())
def test_a_check_never_raises(value: JsonValue) -> None:
    for schema in (row[0] for row in GOOD_AND_BAD):
        problem = problems(schema, value)
        assert problem is None or isinstance(problem, str)


KEYWORDS = "type properties items $ref enum pattern allOf $id $schema required not $anchor"


@given(st.dictionaries(st.sampled_from(KEYWORDS.split()), json_values(), max_size=4), json_values())
def test_any_object_is_a_schema_or_refused(schema: JsonObject, value: JsonValue) -> None:
    with contextlib.suppress(ValueError):
        Schema.compile(schema, "it").check(value)


# Checks in one go, and with pauses


@pytest.mark.parametrize(
    "value",
    [[1] * QUICK_VALUES, [[[[]]]] * QUICK_VALUES, {str(n): n for n in range(QUICK_VALUES)}],
    ids=["1", "[[[]]]", "{}"],
)
def test_a_large_value_is_not_checked_in_one_go(value: JsonValue) -> None:
    with pytest.raises(CheckTooExpensive):
        Schema.compile({}, "it").quick_check(value)


def test_a_quick_check_finds_what_a_check_finds() -> None:
    schema = Schema.compile({"items": {"minimum": 0, "maximum": 1}}, "it")
    good: JsonValue = [0, 1] * (QUICK_STEPS // 16)
    bad: JsonValue = [0, 2, -1]
    assert schema.quick_check(good) is None
    assert schema.quick_check(bad, "rows") == schema.check(bad, "rows") is not None


def test_a_small_value_can_be_expensive_by_its_schema() -> None:
    value: JsonValue = None
    for _ in range(12):
        value = [value]
    schema = Schema.compile(
        {"anyOf": [{"items": {"$ref": "#"}, "minItems": 2}, {"items": {"$ref": "#"}, "minItems": 2}]}, "it"
    )
    with pytest.raises(CheckTooExpensive):
        schema.quick_check(value)


def test_a_check_beside_other_work_pauses() -> None:
    pauses: list[None] = []
    schema = Schema.compile({"items": {"minimum": 0}}, "it")
    assert schema.check([1] * 10_000, pause=lambda: pauses.append(None)) is None
    assert len(pauses) >= 10_000 // STEPS_WITHOUT_PAUSE - 1
