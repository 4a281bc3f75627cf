"""The type of a JSON value, for floor 0: `errors` needs its name, and may not load pydantic."""

from __future__ import annotations

from typing import TypeAlias

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
