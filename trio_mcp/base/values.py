"""Small values that every floor uses: the type of a JSON value, printable text, and fast named tuples.

Nothing here loads pydantic: `errors` needs these names.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"


# Named tuples that are made for each message.

make_tuple: Final = tuple.__new__
"""Make a named tuple of all its fields in order: `make_tuple(Point, (1, 2))`, in a third of the time of `Point(1, 2)`.

The class would call a Python function that calls this. Neither the number of the values nor their types are checked.
"""


class ComparedByFields:
    """Equality and the text of a dataclass with `eq=False, repr=False`, which would compile both for itself, field by field."""

    __slots__ = ()
    # In a dataclass these are the fields, unless they are keywords only.
    __match_args__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _fields_of(self) == _fields_of(other)

    def __hash__(self) -> int:
        return hash(_fields_of(self))

    def __repr__(self) -> str:
        shown = zip(self.__match_args__, _fields_of(self), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown)})"


def _fields_of(value: ComparedByFields) -> tuple[object, ...]:
    return tuple(getattr(value, name) for name in value.__match_args__)


# Text of a peer, made safe to show: errors, log records and the terminal use it.

MAX_CHARACTERS: Final = 1_000
"""Characters of a text that is shown in one line."""

# C0 and C1 controls except tab and newline, and the Unicode characters that embed, override or isolate a direction.
# Compiled when they are first used, by `re`, which keeps them.
_UNSAFE = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
_USER = r"(?<=://)[^/?#]*@"
_BREAKS = r"[\n\u2028\u2029]"


def printable(text: str) -> str:
    """Return text that is safe to show on a terminal: without control characters, and without a change of direction."""
    # Most text needs no regular expression, and some programs none at all.
    return text if text.isascii() and text.isprintable() else re.sub(_UNSAFE, "\ufffd", text)


def one_line(text: str) -> str:
    """Return printable text in one line of at most `MAX_CHARACTERS` characters."""
    shown = text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "..."
    safe = printable(shown)
    return safe if safe.isprintable() else re.sub(_BREAKS, "\\\\n", safe)


def shown_url(url: str) -> str:
    """Return a URL for an error or a log record: without what may be a secret in it (user, query and fragment)."""
    endpoint, query, _ = re.sub(_USER, "", url).partition("#")[0].partition("?")
    return f"{endpoint}{query and '?...'}"
