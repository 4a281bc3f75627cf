"""The convention of OpenTelemetry for MCP, in `convention.json`: what it says of names, types and units."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

CONVENTION: Final[dict[str, Any]] = json.loads(Path(__file__).with_name("convention.json").read_text("utf-8"))
TYPES: Final = {"string": str, "int": int}
OWN: Final = "trio_mcp."


def mistakes(attributes: Mapping[str, object], allowed: list[str]) -> list[str]:
    """What is wrong with the attributes of a span or a metric; those of our own may be anything."""
    found = [f"{name} is missing" for name in CONVENTION["required"] if name not in attributes]
    for name, value in attributes.items():
        if name.startswith((OWN, f"{CONVENTION['template']}.")):
            continue
        if name not in allowed:
            found.append(f"{name} does not belong here")
        elif type(value) is not TYPES[CONVENTION["attributes"][name]]:
            found.append(f"{name} is {value!r}")
    return found


def of_span(kind: str) -> list[str]:
    return [*CONVENTION["common"], *CONVENTION["opt_in"], *CONVENTION["spans"][kind]]
