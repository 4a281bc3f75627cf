"""What a step needs of its client, and the error's word for what is missing."""

from __future__ import annotations

from collections.abc import Iterable

from ..types import ClientCapabilities, JsonObject
from ..types.capabilities import declares


def lacks(declared: ClientCapabilities, gates: Iterable[str]) -> JsonObject | None:
    """The capabilities that are needed and were not declared, as they would be declared; None when nothing is missing."""
    missing: JsonObject = {}
    for gate in gates:
        if not declares(declared, gate):
            name, _, detail = gate.partition(".")
            inner = missing.setdefault(name, {})
            assert isinstance(inner, dict)
            if detail:
                inner[detail] = {}
    return missing or None
