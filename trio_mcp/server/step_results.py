"""Keeping the results of steps as JSON, and restoring them when a call runs again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import cast, get_type_hints

from pydantic import JsonValue as CheckedJson
from pydantic import TypeAdapter, ValidationError

from ..protocol.strict_json import dumps
from ..types import JsonValue


class StepResult:
    """How the result of one function is kept: by its return annotation, or as the plain JSON that it then has to be."""

    __slots__ = ("_adapter", "_declared")

    def __init__(self, returns: object) -> None:
        self._declared = returns is not None
        self._adapter: TypeAdapter[object] = TypeAdapter(
            cast("type[object]", returns if self._declared else CheckedJson)
        )

    def keep(self, name: str, result: object) -> JsonValue:
        """The result as JSON.

        Raises:
            TypeError: it is not what `restore` could bring back.
        """
        try:
            checked = (
                self._adapter.validate_python(result)
                if self._declared
                else self._adapter.validate_python(result, strict=True)
            )
            value: JsonValue = self._adapter.dump_python(checked, mode="json", by_alias=True)
            dumps(value)
        except (ValidationError, ValueError, TypeError) as error:
            how = "it is not what the function declares" if self._declared else "annotate what the function returns"
            kind = type(result).__name__
            raise TypeError(f"the result of the step {name!r}, a {kind}, cannot be kept for a replay: {how}") from error
        return value

    def restore(self, value: object) -> object:
        """The result that was kept.

        Raises:
            ValueError: the function declares something else than it did then.
        """
        return self._adapter.validate_python(value)


@lru_cache(maxsize=1024)
def step_result(fn: Callable[..., object]) -> StepResult:
    """How the result of `fn` is kept."""
    try:
        returns = get_type_hints(fn).get("return")
    except (NameError, TypeError):
        returns = None
    return StepResult(None if returns is type(None) else returns)
