"""JSON Schema for schemas and values that nobody here wrote (L-TOOL-4b, M-SCH-1b).

2020-12, which is the default, and draft-07. A schema is checked once and kept; nothing is ever fetched: a `$ref` leads
within the schema or to one of the official meta-schemas, or the schema is refused. `format` says something and demands
nothing, as 2020-12 has it.

What a check may cost is bounded by steps, not by the clock, so that the same value has the same answer on every machine:
`MAX_STEPS` are used up within half a second or so, and the answer is then that it costs too much. A usual value takes a few
hundred. Patterns are matched without backtracking, see `schema_patterns`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from ...types.base import JsonObject, JsonValue
from ..strict_json import JsonLimits, dumps, json_path, loads
from .patterns import MAX_PATTERN_WEIGHT, Pattern

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator
    from referencing import Resource

    from .keywords import Place


MAX_BYTES: Final = 256 * 1024
"""The largest schema, as compact JSON."""
MAX_DEPTH: Final = 64
"""How deep arrays and objects of a schema may be nested."""
MAX_SUBSCHEMAS: Final = 10_000
"""The most schemas within one schema, itself included."""
MAX_STEPS: Final = 100_000
"""What one check may cost: about one step for each keyword at each value."""

_CACHED: Final = 256
_PROBLEMS: Final = 5
_CHARACTERS: Final = 200  # of each problem
_DEFAULT_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_LIMITS: Final = JsonLimits(max_bytes=2 * MAX_BYTES, max_depth=255, max_number_chars=640)


class Schema:
    """A schema that was found good; made by `compile`. It may be used by several threads at once."""

    __slots__ = ("_patterns", "_places", "_validator", "_weights")

    def __init__(self, encoded: bytes) -> None:
        # A copy: what the caller does to its own later changes nothing here.
        schema = cast("JsonObject | bool", loads(encoded, _LIMITS))
        self._patterns: dict[str, Pattern] = {}
        self._weights: dict[int, int] = {}
        self._places: dict[int, Place] = {}
        kind = _kind_of(schema)
        check = partial(self._must_be_schema, kind)
        check(schema)
        self._validator = kind(schema)
        for inner, place in _subschemas(self._validator, schema, check):
            self._learn(inner, place)

    @classmethod
    def compile(cls, schema: JsonObject | bool, path: str) -> Schema:
        """The schema, ready to check values; the same object for an equal schema that is still kept.

        Args:
            schema: with `$schema` where it is not 2020-12.
            path: what errors call it, for example `inputSchema`.

        Raises:
            ValueError: it is no schema, of another dialect, over a limit, or refers to something outside of it; or a
                pattern needs backtracking. The text says what and, where it can, at which place.
        """
        try:
            return _compiled(_Encoded(schema))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def check(self, value: JsonValue, root: str = "") -> str | None:
        """The first problems of a value in one line, each with its path from `root`; None when it fits the schema.

        Never raises. What costs more than `MAX_STEPS`, or refers to itself without an end, is a problem too.
        """
        return self._first_problems(self._validator, value, root, _PROBLEMS)

    def _must_be_schema(self, kind: type[Validator], schema: JsonValue) -> None:
        problem = self._first_problems(kind(kind.META_SCHEMA), schema, "schema", 1)
        if problem is not None:
            raise ValueError(problem)

    def _first_problems(self, validator: Validator, value: JsonValue, root: str, count: int) -> str | None:
        from .keywords import BUDGET, Budget, TooCostly, printed_short  # noqa: PLC0415  see there

        token = BUDGET.set(Budget(MAX_STEPS, self._patterns, self._weights, self._places))
        try:
            errors = islice(validator.iter_errors(printed_short(value)), count)
            return "; ".join(_told(error, root) for error in errors) or None
        except TooCostly:
            return f"{root or 'the value'} costs more to check than {MAX_STEPS} steps"
        except RecursionError:
            return f"{root or 'the value'} cannot be checked: the schema refers to itself without an end"
        except ArithmeticError:
            return f"{root or 'the value'} holds a number that is too large to be checked"
        finally:
            BUDGET.reset(token)

    def _learn(self, schema: JsonObject, place: Place) -> None:
        for keyword in ("const", "enum"):
            if keyword in schema:
                self._weights[id(schema[keyword])] = _size(schema[keyword])
        self._places[id(schema)] = place
        for pattern in _patterns_in(schema):
            if pattern not in self._patterns:
                self._patterns[pattern] = Pattern(pattern)
        if sum(pattern.weight for pattern in self._patterns.values()) > MAX_PATTERN_WEIGHT:
            raise ValueError("its patterns together are too large (MAX_PATTERN_WEIGHT)")


def _told(error: ValidationError, root: str) -> str:
    return f"{json_path(root, [*error.absolute_path])}: {error.message[:_CHARACTERS]}"


# Compiling


class _Encoded:
    """A schema as bytes, known by their digest, so that the cache does not keep the bytes."""

    __slots__ = ("digest", "encoded")

    def __init__(self, schema: JsonObject | bool) -> None:
        if not isinstance(schema, dict | bool):
            raise ValueError(f"a schema is an object or a boolean, not {type(schema).__name__}")
        self.encoded = dumps(schema, "schema")
        if len(self.encoded) > MAX_BYTES:
            raise ValueError(f"it has {len(self.encoded)} bytes; the limit is {MAX_BYTES}")
        self.digest = hashlib.sha256(self.encoded).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Encoded) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@lru_cache(maxsize=_CACHED)
def _compiled(schema: _Encoded) -> Schema:
    return Schema(schema.encoded)


def _kind_of(schema: JsonObject | bool) -> type[Validator]:
    if (depth := _depth(schema)) > MAX_DEPTH:
        raise ValueError(f"it is nested {depth} levels deep; the limit is {MAX_DEPTH}")
    dialect = _dialect(_of_root(schema))
    from .keywords import DIALECTS  # noqa: PLC0415  it loads jsonschema

    if dialect not in DIALECTS:
        raise ValueError(f"the dialect {dialect!r:.128} is not known; these are: {', '.join(DIALECTS)}")
    return DIALECTS[dialect]


def _dialect(name: JsonValue) -> str:
    return name.removesuffix("#") if isinstance(name, str) else repr(name)


def _subschemas(
    validator: Validator, schema: JsonValue, check: Callable[[JsonValue], None]
) -> Iterator[tuple[JsonObject, Place]]:
    """Every schema within, itself first. `check` is called with what only a reference makes a schema."""
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]  # noqa: PLC0415  as above
    from referencing.jsonschema import specification_with  # noqa: PLC0415

    from .keywords import Place  # noqa: PLC0415

    specification = specification_with(str(type(validator).META_SCHEMA["$schema"]))
    root = specification.create_resource(schema)
    _one_dialect(root, schema)
    resolver = REGISTRY.with_resource(root.id() or "", root).crawl().resolver_with_root(root)
    ours = _places_of(schema)
    seen: set[int] = set()
    waiting: list[Any] = [(root, resolver)]
    referred: list[Any] = []
    count = 0
    while waiting:
        resource, resolver = waiting.pop()
        count += 1
        if count > MAX_SUBSCHEMAS:
            raise ValueError(f"it has more than {MAX_SUBSCHEMAS} schemas within it")
        if isinstance(resource.contents, dict) and id(resource.contents) not in seen:
            seen.add(id(resource.contents))
            targets = _targets(resource.contents, resolver)
            yield resource.contents, Place(resolver, [target.contents for target in targets])
            referred += targets
            waiting += [(inner, resolver.in_subresource(inner)) for inner in resource.subresources()]
        while not waiting and referred:
            target = referred.pop()
            if id(target.contents) in seen:
                continue
            check(target.contents)
            if id(target.contents) in ours:
                inner = specification.create_resource(target.contents)
                _one_dialect(inner, schema)
                waiting.append((inner, target.resolver))


def _places_of(schema: JsonValue) -> set[int]:
    """The ids of all values in it."""
    waiting, ids = [schema], set[int]()
    while waiting:
        value = waiting.pop()
        ids.add(id(value))
        if isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value
    return ids


def _one_dialect(resource: Resource[Any], schema: JsonValue) -> None:
    """Refuses what is of another dialect than the whole, before anything reads it as one of that."""
    waiting = [resource]
    while waiting:
        resource = waiting.pop()
        if isinstance(resource.contents, dict):
            _same_dialect(resource.contents, schema)
        waiting += resource.subresources()


def _same_dialect(inner: Mapping[str, JsonValue], schema: JsonValue) -> None:
    name = inner.get("$schema")
    if name is not None and inner is not schema and _dialect(name) != _dialect(_of_root(schema)):
        raise ValueError(f"a schema within it is of another dialect, {name!r:.128}")


def _of_root(schema: JsonValue) -> JsonValue:
    return schema.get("$schema", _DEFAULT_DIALECT) if isinstance(schema, dict) else _DEFAULT_DIALECT


def _targets(schema: JsonObject, resolver: Any) -> list[Any]:
    """What its references lead to, each with a resolver for what is in there."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415  as above

    found: list[Any] = []
    for keyword in ("$ref", "$dynamicRef"):
        reference = schema.get(keyword)
        if not isinstance(reference, str):
            continue
        try:
            found.append(resolver.lookup(reference))
        except (Unresolvable, ValueError):
            raise ValueError(
                f"its {keyword} {reference!r:.128} leads to nothing within it; nothing is fetched"
            ) from None
    return found


def _patterns_in(schema: JsonObject) -> Iterator[str]:
    pattern, by_name = schema.get("pattern"), schema.get("patternProperties")
    if isinstance(pattern, str):
        yield pattern
    if isinstance(by_name, dict):
        yield from by_name


def _depth(value: JsonValue) -> int:
    if isinstance(value, dict | list):
        members = value.values() if isinstance(value, dict) else value
        return 1 + max(map(_depth, members), default=0)
    return 0


def _size(value: JsonValue) -> int:
    if isinstance(value, dict | list):
        members = value.values() if isinstance(value, dict) else value
        return 1 + sum(map(_size, members))
    return 1
