"""JSON Schema for schemas and values that the peer wrote (L-TOOL-4b, M-SCH-1b).

2020-12, which is the default, and draft-07. A schema is compiled once and cached. Nothing is ever fetched: a `$ref` leads
within the schema or to one of the official meta-schemas, or the schema is rejected. `format` is an annotation and is not
checked, as 2020-12 has it.

The cost of a check is limited in steps, not in seconds, so that the same value has the same result on every machine:
`MAX_STEPS` take about half a second, and the check then fails as too costly. A usual value takes a few hundred. A server makes a
check that takes more than `QUICK_STEPS` beside its event loop. Patterns are matched without backtracking, see `patterns`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from ...types.base import JsonObject, JsonValue
from ..strict_json import dumps
from .limits import MAX_BYTES

_CACHED: Final = 256


class Schema:
    """A valid schema; made by `compile`. Several threads may use it at the same time."""

    __slots__ = ("_compiled",)

    def __init__(self, encoded: bytes) -> None:
        # jsonschema takes 0.2 s to import, and a server whose tools have no output schema never needs it.
        from .compiled import CompiledSchema  # noqa: PLC0415

        self._compiled = CompiledSchema(encoded)

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
            CheckTooDear: it takes longer: the value is large, or costs more than `QUICK_STEPS`.
        """
        return self._compiled.quick_check(value, root)


def _encoded(schema: JsonObject | bool) -> bytes:
    if not isinstance(schema, dict | bool):
        raise ValueError(f"a schema is an object or a boolean, not {type(schema).__name__}")
    encoded = dumps(schema, "schema")
    if len(encoded) > MAX_BYTES:
        raise ValueError(f"it has {len(encoded)} bytes; the limit is {MAX_BYTES}")
    return encoded


# Keyed by the encoded schema, and not by `id()`: clients list the same tools again and again, as new objects.
_compiled: Final = lru_cache(maxsize=_CACHED)(Schema)
