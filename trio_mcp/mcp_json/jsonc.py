"""JSON with comments and trailing commas, as editors write it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, cast

from ..errors import ConfigurationError
from ..json_value import JsonValue

STRING: Final = r'"(?:[^"\\]++|\\.)*+"'
COMMENTS: Final = re.compile(rf"{STRING}|//[^\n]*+|/\*.*?\*/", re.DOTALL)
TRAILING_COMMAS: Final = re.compile(rf"{STRING}|,(?=\s*+[}}\]])", re.DOTALL)


def parse_jsonc(text: str, source: str) -> JsonValue:
    """Return the value of a text.

    Args:
        source: names the text in errors.

    Raises:
        ConfigurationError: it is not JSON, or an object has a member twice.
    """

    def unique(members: Sequence[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {}
        for name, value in members:
            if name in found:
                raise ConfigurationError(f"{source}: an object has {name!r} twice")
            found[name] = value
        return found

    plain = TRAILING_COMMAS.sub(_blank, COMMENTS.sub(_blank, text))
    try:
        return cast("JsonValue", json.loads(plain, object_pairs_hook=unique))
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{source}: line {error.lineno}, column {error.colno}: this is no JSON: {error.msg}"
        ) from None
    except RecursionError:
        raise ConfigurationError(f"{source}: its values are nested too deep") from None


def _blank(match: re.Match[str]) -> str:
    """Return a string as it is, and spaces for anything else, so that errors name the right line and column."""
    found = match[0]
    return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)
