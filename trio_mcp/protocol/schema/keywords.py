"""The keywords of `jsonschema` with an upper bound on what they cost.

The library was not made for schemas and values of an attacker: a few hundred bytes of `$ref` double the work with every
line, `pattern` backtracks, `uniqueItems` compares each with each, every error prints the value again. So each keyword
pays from a budget of steps, those four are replaced, and values are printed by their kind when they are large.

This module loads `jsonschema`, a fifth of a second; nothing but `json_schema` imports it, on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from jsonschema import Draft7Validator, Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from ...types.base import JsonValue
from .patterns import Pattern

Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]
Schema: TypeAlias = Mapping[str, Any]


class TooCostly(Exception):
    """The budget is used up."""


@dataclass(frozen=True, slots=True)
class Place:
    """What its place in the whole means for one of the schemas within a schema.

    Attributes:
        resolver: finds what its references mean.
        targets: the schemas that they lead to.
    """

    resolver: Any  # the library does not name its class
    targets: Sequence[Any]


@dataclass(slots=True)
class Budget:
    """What one check may cost, and what is known of its schema.

    Attributes:
        steps: what is left, about one for each keyword and value, and one for eight members.
        patterns: the compiled patterns, by their text.
        weights: the sizes of `const` and `enum`, by the id of their value.
        places: of the schemas within it, by their id.
    """

    steps: int
    patterns: dict[str, Pattern]
    weights: Mapping[int, int]
    places: Mapping[int, Place]

    def spend(self, steps: int) -> None:
        """Raises TooCostly when nothing is left."""
        self.steps -= steps
        if self.steps < 0:
            raise TooCostly

    def finds(self, pattern: str, text: str) -> bool:
        compiled = self.patterns.get(pattern)
        if compiled is None:  # of a meta-schema
            compiled = self.patterns[pattern] = Pattern(pattern)
        self.spend(1 + len(text) * compiled.weight // 1000)
        return compiled.found_in(text)


BUDGET: Final[ContextVar[Budget]] = ContextVar("BUDGET")
"""Of the check that runs here: keywords are called with nothing that could hold it."""


# Values, printed by their kind when they are large


class _Array(list[Any]):
    def __repr__(self) -> str:
        return "[]" if not self else "an array"


class _Object(dict[str, Any]):
    def __repr__(self) -> str:
        return "{}" if not self else "an object"


class _Text(str):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{self[:60]!r}..."


def printed_short(value: JsonValue) -> JsonValue:
    """An equal value whose parts are printed in a few characters."""
    if isinstance(value, dict):
        return _Object({name: printed_short(member) for name, member in value.items()})
    if isinstance(value, list):
        return _Array([printed_short(member) for member in value])
    return _Text(value) if isinstance(value, str) and len(value) > 80 else value


# Keywords


def _paid(keyword: Keyword) -> Keyword:
    def paying(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[ValidationError] | None:
        BUDGET.get().spend(1 + _width(value) + _width(instance))
        return keyword(validator, value, instance, schema)

    return paying


def _compared(keyword: Keyword) -> Keyword:
    def paying(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[ValidationError] | None:
        budget = BUDGET.get()
        budget.spend(1 + budget.weights.get(id(value), 8) // 8)
        return keyword(validator, value, instance, schema)

    return paying


def _width(value: object) -> int:
    return len(value) // 8 if isinstance(value, list | dict) else 0


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not BUDGET.get().finds(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r:.80}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, inner in patterns.items():
        for name, value in instance.items():
            if BUDGET.get().finds(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _named(instance: Mapping[str, Any], schema: Schema) -> set[str]:
    """The members that `properties` and `patternProperties` speak of."""
    named: set[str] = instance.keys() & schema.get("properties", {}).keys()
    for pattern in schema.get("patternProperties", {}):
        named |= {name for name in instance if BUDGET.get().finds(pattern, name)}
    return named


def _additional_properties(validator: Any, value: Any, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        yield from _others(validator, value, instance, _named(instance, schema), "additional")


def _unevaluated_properties(validator: Any, value: Any, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        seen = _evaluated(validator, instance, schema, own=True)
        yield from _others(validator, value, instance, seen, "unevaluated")


def _unevaluated_items(validator: Any, value: Any, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    if isinstance(instance, list):
        seen = _evaluated(validator, instance, schema, own=True)
        yield from _others(validator, value, dict(enumerate(instance)), seen, "unevaluated")


def _others(
    validator: Any, value: Any, members: Mapping[Any, Any], seen: set[Any], kind: str
) -> Iterator[ValidationError]:
    for name, member in members.items():
        if name in seen:
            continue
        if value is False:
            yield ValidationError(f"{name!r:.80} is {kind} and not allowed")
        else:
            yield from validator.descend(member, value, path=name)


def _unique_items(_validator: Any, unique: bool, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if not unique or not isinstance(instance, list):
        return
    seen: set[object] = set()
    for position, item in enumerate(instance):
        key = _key(item)
        if key in seen:
            yield ValidationError(f"item {position} occurs twice")
            return
        seen.add(key)


def _key(value: Any) -> object:
    """Equal for values that JSON Schema calls equal (2020-12 core, 4.2.2), and different for others."""
    BUDGET.get().spend(1)
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("array", tuple([_key(member) for member in value]))
    if isinstance(value, dict):
        return ("object", frozenset([(name, _key(member)) for name, member in value.items()]))
    return value


# What `unevaluatedProperties` and `unevaluatedItems` leave to others (2020-12 core, 11)


def _evaluated(validator: Any, instance: Any, schema: Any, own: bool = False) -> set[Any]:
    """The names or positions that a schema which holds has looked at; `own`: apart from its `unevaluated` keywords."""
    if not isinstance(schema, dict):
        return set()
    BUDGET.get().spend(1 + _width(instance) + _width(schema))
    seen = _evaluated_here(validator, instance, schema, own)
    for inner in _applied(validator, instance, schema):
        seen |= _evaluated(validator, instance, inner)
    return seen


def _evaluated_here(validator: Any, instance: Any, schema: Schema, own: bool) -> set[Any]:
    if isinstance(instance, dict):
        rest = "additionalProperties" in schema or (not own and "unevaluatedProperties" in schema)
        return set(instance) if rest else _named(instance, schema)
    if "items" in schema or (not own and "unevaluatedItems" in schema):
        return set(range(len(instance)))
    seen = set(range(min(len(instance), len(schema.get("prefixItems", ())))))
    if "contains" in schema:
        seen |= {at for at, item in enumerate(instance) if _holds(validator, item, schema["contains"])}
    return seen


def _applied(validator: Any, instance: Any, schema: Schema) -> Iterator[Any]:
    """The schemas that apply to the same value, and hold."""
    place = BUDGET.get().places.get(id(schema))
    if place is not None:
        yield from place.targets
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from (inner for inner in schema.get(keyword, ()) if _holds(validator, instance, inner))
    if "if" in schema:
        holds = _holds(validator, instance, schema["if"])
        yield schema["if"] if holds else None
        yield schema.get("then" if holds else "else")
    for name, inner in schema.get("dependentSchemas", {}).items():
        if isinstance(instance, dict) and name in instance:
            yield inner


def _holds(validator: Any, instance: Any, schema: Any) -> bool:
    place = BUDGET.get().places.get(id(schema))
    errors = validator.descend(instance, schema, resolver=None if place is None else place.resolver)
    return next(iter(errors), None) is None


# Dialects


def _bounded(base: type[Validator], **replaced: Keyword) -> type[Validator]:
    keywords = {name: _paid(keyword) for name, keyword in {**base.VALIDATORS, **replaced}.items()}
    for name in ("const", "enum"):
        keywords[name] = _compared(base.VALIDATORS[name])
    bounded: type[Validator] = extend(base, keywords)  # type: ignore[no-untyped-call]
    return bounded


_REPLACED: Final[Mapping[str, Keyword]] = {
    "additionalProperties": _additional_properties,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "uniqueItems": _unique_items,
}
_DRAFT_2020_12: Final = _bounded(
    Draft202012Validator,
    **_REPLACED,
    unevaluatedItems=_unevaluated_items,
    unevaluatedProperties=_unevaluated_properties,
)
DIALECTS: Final[Mapping[str, type[Validator]]] = {
    "https://json-schema.org/draft/2020-12/schema": _DRAFT_2020_12,
    "http://json-schema.org/draft-07/schema": _bounded(Draft7Validator, **_REPLACED),
}
