"""JSON Schema for schemas and values that the peer wrote (L-TOOL-4b, M-SCH-1b).

2020-12, which is the default, and draft-07. A schema is compiled once and cached. Nothing is ever fetched: a `$ref` leads
within the schema or to one of the official meta-schemas, or the schema is rejected. `format` is an annotation and is not
checked, as 2020-12 has it.

The cost of a check is limited in steps, not in seconds, so that the same value has the same result on every machine:
`MAX_STEPS` take about half a second, and the check then fails as too costly. A usual value takes a few hundred. A check
that takes more than `QUICK_STEPS` is made beside the event loop. Patterns are matched without backtracking, see `patterns`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from ...types.base import JsonObject, JsonValue
from ..strict_json import dumps
from .references import MAX_BYTES, MAX_PATTERN_WEIGHT, MAX_SUBSCHEMAS

if TYPE_CHECKING:
    from .compiled import CompiledSchema

_CACHED: Final = 256


class Schema:
    """A valid schema; made by `compile`. Several threads may use it at the same time."""

    __slots__ = ("_encoded", "_found")

    def __init__(self, encoded: bytes, *, known_valid: bool = False) -> None:
        self._encoded: bytes | None = encoded
        self._found: CompiledSchema | None = None
        if not known_valid:
            self._found = self._compile(known_valid=False)

    def _compile(self, *, known_valid: bool) -> CompiledSchema:
        # jsonschema takes 0.2 s to import, and a server whose tools have no output schema never needs it.
        from .compiled import CompiledSchema  # noqa: PLC0415

        encoded, self._encoded = self._encoded, None
        assert encoded is not None
        return CompiledSchema(encoded, known_valid=known_valid)

    @property
    def _compiled(self) -> CompiledSchema:
        if (found := self._found) is None:
            found = self._found = self._compile(known_valid=True)
        return found

    @classmethod
    def compile(cls, schema: JsonObject | bool, path: str) -> Schema:
        """Return the schema, ready to check values; the same object for an equal schema that is still cached.

        Args:
            schema: with `$schema` unless it is 2020-12.
            path: its name in error messages, for example `inputSchema`.

        Raises:
            ValueError: it is not a valid schema, has another dialect, exceeds a limit, or refers to something outside of it; or a
                pattern needs backtracking. The message says what and, if possible, where.
        """
        if isinstance(schema, ValidSchema):
            return schema.schema
        try:
            return _compiled(_encoded(schema))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None

    def check(self, value: JsonValue, root: str = "", pause: Callable[[], object] | None = None) -> str | None:
        """Return the first problems of a value in one line, each with its path from `root`, or None if the value is valid.

        Never raises. A value that costs more than `MAX_STEPS` is invalid, and so is one on which the schema refers to itself
        without end or its keywords take more than `MAX_FRAMES`.

        Args:
            pause: called again and again, for a check that is made in a thread beside other work.
        """
        return self._compiled.check(value, root, pause)

    def quick_check(self, value: JsonValue, root: str = "") -> str | None:
        """Return what `check` returns if that takes some ten milliseconds at most.

        Raises:
            CheckTooExpensive: it takes longer: the value is large, or costs more than `QUICK_STEPS`.
        """
        return self._compiled.quick_check(value, root)


def check_keywords(schema: JsonObject, path: str) -> None:
    """Raise `ValueError` unless the keywords of a schema are valid; its references may lead to nothing yet."""
    from .compiled import check_keywords as check  # noqa: PLC0415

    try:
        check(schema)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


class ValidSchema(JsonObject):
    """A schema whose parts were all checked before they were put together. It is compiled when the first value is checked.

    Args:
        pattern_weight: that of all patterns in it at most.

    Raises:
        ValueError: it is over a limit.

    Attributes:
        schema: what checks values.
    """

    def __init__(self, schema: JsonObject, pattern_weight: int) -> None:
        super().__init__(schema)
        encoded = _encoded(schema)
        # There are no more schemas than objects. One that may be over a limit is looked at as a whole.
        may_exceed = encoded.count(b"{") > MAX_SUBSCHEMAS or pattern_weight > MAX_PATTERN_WEIGHT
        self.schema = _compiled(encoded) if may_exceed else Schema(encoded, known_valid=True)


def _encoded(schema: JsonObject | bool) -> bytes:
    if not isinstance(schema, dict | bool):
        raise ValueError(f"a schema is an object or a boolean, not {type(schema).__name__}")
    encoded = dumps(schema, "schema")
    if len(encoded) > MAX_BYTES:
        raise ValueError(f"it has {len(encoded)} bytes; the limit is {MAX_BYTES}")
    return encoded


# Keyed by the encoded schema, and not by `id()`: clients list the same tools again and again, as new objects.
_compiled: Final = lru_cache(maxsize=_CACHED)(Schema)
