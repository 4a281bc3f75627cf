"""JSON with comments and trailing commas, as editors write it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Final, cast

from ..errors import ConfigurationError
from ..json_value import JsonValue

# What does not end takes the rest of the text: else each quote or "/*" in it would be tried to the end, in quadratic time.
STRING: Final = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
COMMENT: Final = r"//[^\r\n]*+|/\*.*?(?:\*/|(?P<open>\Z))"
COMMENTS: Final = re.compile(rf"{STRING}|{COMMENT}", re.DOTALL)
# A comma without a value before it stays, so that it is an error.
TRAILING_COMMAS: Final = re.compile(rf"{STRING}|[\[{{,:]\s*+,|,(?=\s*+[}}\]])", re.DOTALL)


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

    plain = without_trailing_commas(without_comments(text))
    try:
        return cast("JsonValue", json.loads(plain, object_pairs_hook=unique))
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{source}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except ConfigurationError:
        raise
    except ValueError:
        # Python does not convert a longer one, which would take quadratic time.
        raise ConfigurationError(f"{source}: a number has more than {sys.get_int_max_str_digits()} digits") from None
    except RecursionError:
        raise ConfigurationError(f"{source}: its values are nested too deep") from None


def find_comments(text: str) -> list[tuple[int, int]]:
    """Return where each comment of a text begins and ends; the end of its line is not included."""
    return [match.span() for match in COMMENTS.finditer(text) if _is_comment(match)]


def without_comments(text: str) -> str:
    """Return a text with spaces in place of its comments, so that every other character stays at its line and column."""
    return COMMENTS.sub(lambda match: _blank(match[0]) if _is_comment(match) else match[0], text)


def without_trailing_commas(text: str) -> str:
    """Return a text that has no comments with a space in place of each comma behind a last member or element."""
    return TRAILING_COMMAS.sub(lambda match: " " if match[0] == "," else match[0], text)


def _is_comment(match: re.Match[str]) -> bool:
    # What does not end stays, so that it is an error.
    return not match[0].startswith('"') and match["open"] is None


def _blank(comment: str) -> str:
    return re.sub(r"[^\r\n]", " ", comment)
