"""The keywords of `jsonschema` with an upper bound on what they cost.

The library was not written for schemas and values from an attacker. A few hundred bytes of `$ref` double the work with every
line, `pattern` backtracks, `uniqueItems` compares each pair of items, and every error prints the whole value. So each keyword
takes its cost from a budget of steps, those four are replaced, and large values are printed by their kind.

A long chain of `$ref` would run the stack out. Where that happens within the library's Rust code, it raises no `RecursionError`
but a panic. So each keyword that applies a schema counts its frames, and a check ends far above the end of the stack.

This module loads `jsonschema`, which takes 0.2 s. Only `compiled` imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from jsonschema import Draft7Validator, Draft202012Validator, ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import extend

from ...base.named_tuples import NamedTuple
from ...types.base import JsonValue
from .references import MAX_FRAMES, STEPS_WITHOUT_PAUSE, Pattern, Resolver

Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Iterable[ValidationError] | None]
Schema: TypeAlias = Mapping[str, Any]


class BudgetExceeded(Exception):
    """The budget of a check is used up."""


class NestedTooDeep(Exception):
    """The keywords of a check are nested deeper than `MAX_FRAMES`."""


class SubschemaRole(NamedTuple):
    """What one subschema needs from the schema around it.

    Attributes:
        resolver: resolves its references; the base URI depends on where it stands.
        targets: the schemas that its references lead to.
    """

    resolver: Resolver
    targets: Sequence[JsonValue]


@dataclass(slots=True)
class CheckBudget:
    """The steps that are left to one check, and what is known of its schema.

    Attributes:
        steps: about one for each keyword and value, and one for eight members.
        patterns: the compiled patterns, by their text.
        weights: the sizes of `const` and `enum`, by the id of their value.
        roles: the roles of its subschemas, by the id of their value.
        pause: called again and again; None if the check is made in one go.
        frames: of the stack that the keywords take which are being checked now.
    """

    steps: int
    patterns: dict[str, Pattern]
    weights: Mapping[int, int]
    roles: Mapping[int, SubschemaRole]
    pause: Callable[[], object] | None = None
    frames: int = 0
    _without_pause: int = 0

    def spend(self, steps: int) -> None:
        """Take `steps` from the budget; raise `BudgetExceeded` if fewer are left."""
        self.steps -= steps
        if self.steps < 0:
            raise BudgetExceeded
        if self.pause is not None:
            self._without_pause += steps
            if self._without_pause >= STEPS_WITHOUT_PAUSE:
                self._without_pause = 0
                self.pause()

    def enter(self, frames: int) -> None:
        """Count frames that are taken now; raise `NestedTooDeep` if they are too many together."""
        self.frames += frames
        if self.frames > MAX_FRAMES:
            raise NestedTooDeep

    def leave(self, frames: int) -> None:
        """Count frames that are free again."""
        self.frames -= frames

    def finds(self, pattern: str, text: str) -> bool:
        """Return whether a pattern matches in a text, and take its cost from the budget."""
        compiled = self.patterns.get(pattern)
        # The patterns of the schema itself were compiled with it; this is one of a meta-schema.
        if compiled is None:
            compiled = self.patterns[pattern] = Pattern(pattern)
        self.spend(1 + len(text) * compiled.weight // 1000)
        return compiled.matches(text)


CHECK_BUDGET: Final[ContextVar[CheckBudget]] = ContextVar("CHECK_BUDGET")
"""The budget of the check that runs in this context: `jsonschema` calls a keyword with no argument that could hold it."""


# Values that print in a few characters. The library formats every error message with the repr of the value, also when the
# message is never read: a large array with an error in each item would cost n².


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


def abbreviated(value: JsonValue) -> JsonValue:
    """Return an equal value whose parts have a short repr."""
    if isinstance(value, dict):
        return _Object({name: abbreviated(member) for name, member in value.items()})
    if isinstance(value, list):
        return _Array([abbreviated(member) for member in value])
    return _Text(value) if isinstance(value, str) and len(value) > 80 else value


# Keywords


def _with_cost(keyword: Keyword) -> Keyword:
    def paying(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[ValidationError] | None:
        CHECK_BUDGET.get().spend(1 + _width(value) + _width(instance))
        return keyword(validator, value, instance, schema)

    return paying


def _nesting(keyword: Keyword, frames: int) -> Keyword:
    """Return a keyword that applies a schema, with its cost and its frames."""

    def paying(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        budget = CHECK_BUDGET.get()
        budget.spend(1 + _width(value) + _width(instance))
        budget.enter(frames)
        try:
            yield from keyword(validator, value, instance, schema) or ()
        finally:
            budget.leave(frames)

    return paying


def _compared(keyword: Keyword) -> Keyword:
    def paying(validator: Any, value: Any, instance: Any, schema: Any) -> Iterable[ValidationError] | None:
        budget = CHECK_BUDGET.get()
        budget.spend(1 + budget.weights.get(id(value), 8) // 8)
        return keyword(validator, value, instance, schema)

    return paying


# Eight members count as one step: to iterate over a member is much cheaper than to call a keyword.
def _width(value: object) -> int:
    return len(value) // 8 if isinstance(value, list | dict) else 0


def _pattern(_validator: Any, pattern: str, instance: Any, _schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not CHECK_BUDGET.get().finds(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r:.80}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, _schema: Any
) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    for pattern, inner in patterns.items():
        for name, value in instance.items():
            if CHECK_BUDGET.get().finds(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _declared_members(instance: Mapping[str, Any], schema: Schema) -> set[str]:
    """Return the names of members that `properties` or `patternProperties` apply to."""
    named: set[str] = instance.keys() & schema.get("properties", {}).keys()
    for pattern in schema.get("patternProperties", {}):
        named |= {name for name in instance if CHECK_BUDGET.get().finds(pattern, name)}
    return named


def _additional_properties(validator: Any, value: Any, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        yield from _others(validator, value, instance, _declared_members(instance, schema), "additional")


def _unevaluated_properties(validator: Any, value: Any, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        seen = _evaluated(validator, instance, schema, without_unevaluated=True)
        yield from _others(validator, value, instance, seen, "unevaluated")


def _unevaluated_items(validator: Any, value: Any, instance: Any, schema: Schema) -> Iterator[ValidationError]:
    if isinstance(instance, list):
        seen = _evaluated(validator, instance, schema, without_unevaluated=True)
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
    # A set instead of the library's comparison of all pairs. The first repetition is enough: a list of all could be long.
    seen: set[object] = set()
    for position, item in enumerate(instance):
        key = _key(item)
        if key in seen:
            yield ValidationError(f"item {position} occurs twice")
            return
        seen.add(key)


def _key(value: Any) -> object:
    """Return a hashable that is equal for values that JSON Schema calls equal (2020-12 core, 4.2.2), and for no others.

    Hashes make `uniqueItems` linear; comparing each pair, as the library does, is quadratic.
    """
    CHECK_BUDGET.get().spend(1)
    # In Python `True == 1`, in JSON Schema they differ.
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("array", tuple([_key(member) for member in value]))
    if isinstance(value, dict):
        return ("object", frozenset([(name, _key(member)) for name, member in value.items()]))
    return value


# What `unevaluatedProperties` and `unevaluatedItems` do not apply to (2020-12 core, 11). The library computes it
# without a limit; here each step takes from the budget.


def _evaluated(validator: Any, instance: Any, schema: Any, without_unevaluated: bool = False) -> set[Any]:
    """Return the names or positions that were evaluated by a schema for which the instance is valid.

    `without_unevaluated` leaves out what the schema's own `unevaluated...` keywords would evaluate.
    """
    if not isinstance(schema, dict):
        return set()
    budget = CHECK_BUDGET.get()
    budget.spend(1 + _width(instance) + _width(schema))
    budget.enter(1)
    seen = _evaluated_here(validator, instance, schema, without_unevaluated)
    for inner in _applied(validator, instance, schema):
        seen |= _evaluated(validator, instance, inner)
    budget.leave(1)
    return seen


def _evaluated_here(validator: Any, instance: Any, schema: Schema, without_unevaluated: bool) -> set[Any]:
    if isinstance(instance, dict):
        rest = "additionalProperties" in schema or (not without_unevaluated and "unevaluatedProperties" in schema)
        return set(instance) if rest else _declared_members(instance, schema)
    if "items" in schema or (not without_unevaluated and "unevaluatedItems" in schema):
        return set(range(len(instance)))
    seen = set(range(min(len(instance), len(schema.get("prefixItems", ())))))
    if "contains" in schema:
        seen |= {at for at, item in enumerate(instance) if _holds(validator, item, schema["contains"])}
    return seen


def _applied(validator: Any, instance: Any, schema: Schema) -> Iterator[Any]:
    """Yield the schemas that apply to the same value and for which it is valid."""
    role = CHECK_BUDGET.get().roles.get(id(schema))
    if role is not None:
        yield from role.targets
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
    budget = CHECK_BUDGET.get()
    role = budget.roles.get(id(schema))
    errors = validator.descend(instance, schema, resolver=None if role is None else role.resolver)
    budget.enter(_HOLDS_FRAMES)
    holds = next(iter(errors), None) is None
    budget.leave(_HOLDS_FRAMES)
    return holds


# Dialects

# The frames of each keyword that applies schemas: that of `_nesting`, its own, and those that it calls.
_FRAMES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("$ref", "$dynamicRef", "allOf", "anyOf", "properties", "patternProperties", "propertyNames"), 3),
    **dict.fromkeys(("items", "prefixItems", "additionalItems", "dependentSchemas", "dependencies"), 3),
    **dict.fromkeys(("additionalProperties", "unevaluatedItems", "unevaluatedProperties"), 4),
    **dict.fromkeys(("contains", "if", "not", "oneOf"), 5),
}
_HOLDS_FRAMES: Final = 4


def _bounded(base: type[Validator], **replaced: Keyword) -> type[Validator]:
    keywords = {
        name: _nesting(keyword, _FRAMES[name]) if name in _FRAMES else _with_cost(keyword)
        for name, keyword in {**base.VALIDATORS, **replaced}.items()
    }
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
# draft-07 too, although MCP's default is 2020-12: popular generators of schemas still write it into `$schema`, and a client that
# rejected it could not use these tools.
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
