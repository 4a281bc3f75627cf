"""Schemas compiled with `jsonschema`: the part of `json_schema` that is loaded only when a schema is compiled.

The library calls a keyword with the validator, two values and the schema, and has no argument for a caller's own data. So the
budget of a check is in a context variable (`CHECK_BUDGET`), and what was found out about a subschema is kept by the `id()` of
its value. That is sound because the schema is a private copy that lives as long as its validator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache, partial
from itertools import islice
from typing import Any, Final, cast

from jsonschema import ValidationError
from jsonschema.protocols import Validator
from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
from referencing import Resource
from referencing.jsonschema import specification_with

from ...types.base import JsonObject, JsonValue
from ..strict_json import JsonLimits, json_path, loads
from .keywords import CHECK_BUDGET, DIALECTS, BudgetExceeded, CheckBudget, NestedTooDeep, SubschemaRole, abbreviated
from .references import (
    MAX_BYTES,
    MAX_DEPTH,
    MAX_PATTERN_WEIGHT,
    MAX_STEPS,
    MAX_SUBSCHEMAS,
    QUICK_STEPS,
    QUICK_VALUES,
    CheckTooExpensive,
    Pattern,
    Resolved,
    Resolver,
    lookup,
)

# Meta-schemas in one piece: what the official ones accept, at a fifth of the cost.
#
# The meta-schema of 2020-12 is spread over seven vocabularies, and each of them refers to the whole by `$dynamicRef`, so that
# an
# extension can add vocabularies. A check goes through all seven for every subschema, and looks for each reference.
#
#     {"allOf": [{"$ref": "meta/core"}, ...]}                     the properties of all vocabularies
#     {"$dynamicRef": "#meta"}                                    {"$ref": "#"}
#     {"$ref": "meta/validation#/$defs/stringArray"}              {"$ref": "#/$defs/stringArray"}


def in_one_piece(meta_schema: Mapping[str, Any]) -> JsonObject:
    """Return an equivalent of an official meta-schema; one without vocabularies is returned as it is."""
    if "$vocabulary" not in meta_schema:
        return dict(meta_schema)
    base = str(meta_schema["$id"])
    resolver = REGISTRY.resolver(base)
    parts = [cast("Mapping[str, Any]", resolver.lookup(part["$ref"]).contents) for part in meta_schema["allOf"]]
    properties: JsonObject = {}
    definitions: JsonObject = {}
    for part in (*parts, meta_schema):
        for name, each in part.get("properties", {}).items():
            assert name not in properties, name
            properties[name] = rewritten(each)
        for name, each in part.get("$defs", {}).items():
            assert name not in definitions, name
            definitions[name] = rewritten(each)
    # Without its `$id`, so that its references lead into this copy.
    return {
        "$schema": meta_schema["$schema"],
        "type": meta_schema["type"],
        "properties": properties,
        "$defs": definitions,
    }


def rewritten(value: JsonValue) -> JsonValue:
    """Return a part of a vocabulary with its references into the one piece."""
    if isinstance(value, list):
        return [rewritten(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("$dynamicRef") == "#meta":
        return {"$ref": "#"}
    made = {name: rewritten(item) for name, item in value.items()}
    # `$ref` is also the name of a property that the core vocabulary describes.
    if isinstance(reference := value.get("$ref"), str):
        made["$ref"] = f"#{reference.partition('#')[2]}"
    return made


_PROBLEMS: Final = 5
_CHARACTERS: Final = 200  # of each problem
_DEFAULT_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_LIMITS: Final = JsonLimits(max_bytes=2 * MAX_BYTES, max_depth=255, max_number_chars=640)


class CompiledSchema:
    """A valid schema. Several threads may use it at the same time."""

    __slots__ = ("_patterns", "_roles", "_validator", "_weights")

    def __init__(self, encoded: bytes, *, known_valid: bool = False) -> None:
        # A private copy, so that a caller who changes the schema later does not change the checks.
        schema = cast("JsonObject | bool", loads(encoded, _LIMITS))
        self._patterns: dict[str, Pattern] = {}
        self._weights: dict[int, int] = {}
        self._roles: dict[int, SubschemaRole] = {}
        kind = _kind_of(schema)
        check = partial(_must_be_schema, kind)
        if not known_valid:
            check(schema)
        self._validator = kind(schema)
        for inner, role in _subschemas(self._validator, schema, check):
            self._index_subschema(inner, role)

    def check(self, value: JsonValue, root: str, pause: Callable[[], object] | None) -> str | None:
        """See `Schema.check`."""
        try:
            return self._first_problems(self._validator, value, root, _PROBLEMS, pause=pause)
        except BudgetExceeded:
            return f"{root or 'the value'} costs more to check than {MAX_STEPS} steps"

    def quick_check(self, value: JsonValue, root: str) -> str | None:
        """See `Schema.quick_check`."""
        if sum(1 for _ in islice(_values_in(value), QUICK_VALUES + 1)) > QUICK_VALUES:
            raise CheckTooExpensive
        try:
            return self._first_problems(self._validator, value, root, _PROBLEMS, max_steps=QUICK_STEPS)
        except BudgetExceeded:
            raise CheckTooExpensive from None

    def _first_problems(
        self,
        validator: Validator,
        value: JsonValue,
        root: str,
        count: int,
        *,
        max_steps: int = MAX_STEPS,
        pause: Callable[[], object] | None = None,
    ) -> str | None:
        budget = CheckBudget(max_steps, self._patterns, self._weights, self._roles, pause)
        return _first_problems(budget, validator, value, root, count)

    def _index_subschema(self, schema: JsonObject, role: SubschemaRole) -> None:
        for keyword in ("const", "enum"):
            if keyword in schema:
                self._weights[id(schema[keyword])] = sum(1 for _ in _values_in(schema[keyword]))
        self._roles[id(schema)] = role
        for pattern in _patterns_in(schema):
            if pattern not in self._patterns:
                self._patterns[pattern] = Pattern(pattern)
        if sum(pattern.weight for pattern in self._patterns.values()) > MAX_PATTERN_WEIGHT:
            raise ValueError("its patterns together are too large (MAX_PATTERN_WEIGHT)")


def check_keywords(schema: JsonObject) -> None:
    """Raise `ValueError` unless the keywords of a schema of 2020-12 are valid; its references are not looked at."""
    _must_be_schema(_kind_of(schema), schema)


def _must_be_schema(kind: type[Validator], schema: JsonValue) -> None:
    try:
        problem = _first_problems(CheckBudget(MAX_STEPS, {}, {}, {}, None), _meta_validator(kind), schema, "schema", 1)
    except BudgetExceeded:
        problem = f"schema costs more to check than {MAX_STEPS} steps"
    if problem is not None:
        raise ValueError(problem)


def _first_problems(budget: CheckBudget, validator: Validator, value: JsonValue, root: str, count: int) -> str | None:
    token = CHECK_BUDGET.set(budget)
    try:
        errors = islice(validator.iter_errors(abbreviated(value)), count)
        return "; ".join(_problem_text(error, root) for error in errors) or None
    # A `$ref` that leads back to itself never comes to a smaller value. A caller may have left little of the stack.
    except (NestedTooDeep, RecursionError):
        return _too_deep(root)
    # `multipleOf` divides, and an integer of 640 digits is not a float.
    except ArithmeticError:
        return f"{root or 'the value'} holds a number that is too large to be checked"
    except BaseException as error:  # noqa: ASYNC103, ASYNC104  re-raised unless it is a Rust panic
        if not _is_panic(error):
            raise
        return _too_deep(root)  # noqa: ASYNC104
    finally:
        CHECK_BUDGET.reset(token)


@cache
def _meta_validator(kind: type[Validator]) -> Validator:
    return kind(in_one_piece(kind.META_SCHEMA))


def _is_panic(error: BaseException) -> bool:
    """Return whether Rust code has panicked, which the end of the stack makes `rpds` do."""
    # Each Rust library has a separate class of this name, and none can be imported.
    return (type(error).__module__, type(error).__name__) == ("pyo3_runtime", "PanicException")


def _too_deep(root: str) -> str:
    return f"{root or 'the value'} cannot be checked: the schema refers to itself without an end, or its references lead too deep"


def _problem_text(error: ValidationError, root: str) -> str:
    return f"{json_path(root, [*error.absolute_path])}: {error.message[:_CHARACTERS]}"


def _kind_of(schema: JsonObject | bool) -> type[Validator]:
    if (depth := _depth(schema)) > MAX_DEPTH:
        raise ValueError(f"it is nested {depth} levels deep; the limit is {MAX_DEPTH}")
    dialect = _dialect(schema)
    if dialect not in DIALECTS:
        raise ValueError(f"the dialect {dialect!r:.128} is not known; these are: {', '.join(DIALECTS)}")
    return DIALECTS[dialect]


def _dialect(schema: JsonValue) -> str:
    name = _as_object(schema).get("$schema", _DEFAULT_DIALECT)
    # draft-07 names itself with an empty fragment, and many schemas leave it out.
    return name.removesuffix("#") if isinstance(name, str) else repr(name)


def _subschemas(
    validator: Validator, schema: JsonValue, check: Callable[[JsonValue], None]
) -> Iterator[tuple[JsonObject, SubschemaRole]]:
    """Yield every subschema with its role, the schema itself first.

    `check` is called with values that are a schema only because a reference leads to them: the meta-schema has not seen them.
    """
    specification = specification_with(str(type(validator).META_SCHEMA["$schema"]))
    root = specification.create_resource(schema)
    _one_dialect(root, schema)
    resolver = cast("Resolver", REGISTRY.with_resource(root.id() or "", root).crawl().resolver_with_root(root))
    ours = set(map(id, _values_in(schema)))
    # First everything that the dialect's keywords make a schema, then what only references lead to: a target is checked against
    # the meta-schema only if it was not reached before.
    seen: set[int] = set()
    waiting: list[tuple[Resource[Any], Resolver]] = [(root, resolver)]
    referred: list[Resolved] = []
    count = 0
    while waiting:
        resource, resolver = waiting.pop()
        count += 1
        if count > MAX_SUBSCHEMAS:
            raise ValueError(f"it has more than {MAX_SUBSCHEMAS} schemas within it")
        if isinstance(resource.contents, dict) and id(resource.contents) not in seen:
            seen.add(id(resource.contents))
            targets = _targets(resource.contents, resolver)
            yield resource.contents, SubschemaRole(resolver, [target.contents for target in targets])
            referred += targets
            waiting += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
        while not waiting and referred:
            target = referred.pop()
            if id(target.contents) in seen:
                continue
            check(target.contents)
            # The official meta-schemas can be targets too; their own subschemas are not indexed.
            if id(target.contents) in ours:
                inner = specification.create_resource(target.contents)
                _one_dialect(inner, schema)
                waiting.append((inner, target.resolver))


def _values_in(value: JsonValue) -> Iterator[JsonValue]:
    """Yield a value and all values in it."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        waiting += _members(value)


def _members(value: JsonValue) -> Collection[JsonValue]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _one_dialect(resource: Resource[Any], schema: JsonValue) -> None:
    """Raise if a subschema has another dialect than the whole, before anything reads it by that dialect's rules."""
    # `referencing` would follow the other dialect, and jsonschema would not: they would disagree about what is a subschema.
    waiting = [resource]
    while waiting:
        resource = waiting.pop()
        if "$schema" in _as_object(resource.contents) and _dialect(resource.contents) != _dialect(schema):
            raise ValueError(f"a schema within it is of another dialect, {resource.contents['$schema']!r:.128}")
        waiting += resource.subresources()


def _as_object(schema: JsonValue) -> Mapping[str, JsonValue]:
    return schema if isinstance(schema, dict) else {}


def _targets(schema: JsonObject, resolver: Resolver) -> list[Resolved]:
    """Return the targets of a schema's references, each with a resolver for the references in it."""
    found: list[Resolved] = []
    for keyword in ("$ref", "$dynamicRef"):
        reference = schema.get(keyword)
        if not isinstance(reference, str):
            continue
        target = lookup(reference, resolver)
        if target is None:
            raise ValueError(f"its {keyword} {reference!r:.128} leads to nothing within it; nothing is fetched")
        found.append(target)
    return found


def _patterns_in(schema: JsonObject) -> Iterator[str]:
    pattern, by_name = schema.get("pattern"), schema.get("patternProperties")
    if isinstance(pattern, str):
        yield pattern
    if isinstance(by_name, dict):
        yield from by_name


def _depth(value: JsonValue) -> int:
    return 1 + max(map(_depth, _members(value)), default=0) if isinstance(value, dict | list) else 0
