"""`$ref`: finding its target, for schemas that values are validated with and for those that are only read.

`referencing` resolves them, because jsonschema resolves with it too: a second resolver could disagree with it about what a schema
means. Nothing is ever fetched.
"""

from __future__ import annotations

import re
from typing import Any, Final, Protocol, cast

from pydantic_core import SchemaError, SchemaValidator, core_schema

from ...types.base import JsonObject, JsonValue


class Resolver(Protocol):
    """A resolver of `referencing`, which does not export its class."""

    def lookup(self, ref: str) -> Resolved: ...

    def in_subresource(self, subresource: Any) -> Resolver: ...


class Resolved(Protocol):
    """The target of a reference, and the resolver for the references in it."""

    @property
    def contents(self) -> JsonValue: ...

    @property
    def resolver(self) -> Resolver: ...


def lookup(reference: str, resolver: Resolver) -> Resolved | None:
    """Return the target of a reference, or None if it leads nowhere."""
    from referencing.exceptions import Unresolvable  # noqa: PLC0415  see _resolver_of

    try:
        return resolver.lookup(reference)
    # For a pointer that goes on below a string or a number, and for malformed schemas that are searched for an anchor.
    except (Unresolvable, ValueError, TypeError, AttributeError):
        return None


def dereference(schema: JsonObject, root: JsonObject) -> JsonObject | None:
    """Return a copy of `schema` without `$ref`: the members of its target, and over them its own.

    Returns:
        None if a reference leads out of `root`, to no schema, or back to itself.
    """
    merged, followed = dict(schema), set[str]()
    while isinstance(reference := merged.pop("$ref", None), str):
        target = lookup(reference, _resolver_of(root))
        if target is None or not isinstance(target.contents, dict) or reference in followed:
            return None
        followed.add(reference)
        merged = {**target.contents, **merged}
    return merged


def _resolver_of(root: JsonObject) -> Resolver:
    # `referencing` takes 14 ms to import, and most servers have no `$ref` that they must read.
    from referencing import Registry  # noqa: PLC0415
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415

    return cast("Resolver", Registry[Any]().with_resource("", DRAFT202012.create_resource(root)).resolver())


# The regular expressions of JSON Schema, without backtracking: a pattern and a text may both come from an attacker.
#
# They are matched by the regex engine of pydantic_core, in time linear in the text. The engine has no look-around and no
# back-references, so a pattern with these is rejected. Escapes have the meaning of ECMA-262: `\d` and `\w` are ASCII.

MAX_PATTERN_WEIGHT: Final = 100_000
"""How large the patterns of one schema may be together: about the states of their automata."""

_HEAVY: Final = 500  # states of a class of Unicode, like \p{L}
_LIGHT: Final = 4
_BOUND: Final = r"(\))?\{([0-9]{1,6})(?:,([0-9]{0,6}))?\}"
_PIECE: Final = r"(?s)\\.|."
_ESCAPES: Final = {r"\d": "[0-9]", r"\D": "[^0-9]", r"\w": "[0-9A-Za-z_]", r"\W": "[^0-9A-Za-z_]"}
# In a character class the engine has operators (`[a&&b]`, `[a~~b]`, nested classes) that are plain characters in ECMA-262.
_PLAIN_IN_CLASS: Final = frozenset("[&~")


class Pattern:
    """A compiled pattern, which matches anywhere in a text unless it is anchored.

    Raises:
        ValueError: it is not a regular expression, needs backtracking, or is too large.

    Attributes:
        weight: about how many states its automaton has.
    """

    __slots__ = ("_validator", "weight")

    def __init__(self, text: str) -> None:
        self.weight = _weight(text)
        if self.weight > MAX_PATTERN_WEIGHT:
            raise ValueError(f"the pattern {text!r:.80} is too large")
        schema = core_schema.str_schema(pattern=_translated(text), regex_engine="rust-regex")
        # A string validator is the only door to the engine: pydantic_core does not export it.
        try:
            self._validator = SchemaValidator(schema)
        except (SchemaError, ValueError) as error:
            reason = str(error).splitlines()[-1].strip().removeprefix("error: ")
            raise ValueError(f"the pattern {text!r:.80} is refused: {reason[:160]}") from None

    def matches(self, text: str) -> bool:
        return self._validator.isinstance_python(text)


def _weight(text: str) -> int:
    # Estimated from the text: the engine would find out too, but only after 10 MiB and a quarter of a second for each pattern.
    classes = text.count(r"\p") + text.count(r"\P")
    unit = _HEAVY if classes else _LIGHT
    weight, groups = len(text) + unit * classes, 1
    for group, least, most in re.findall(_BOUND, text):
        bound = max(int(least), int(most or 0), 1)
        if group:
            groups *= bound
        else:
            weight += unit * bound
    return weight * groups


def _translated(text: str) -> str:
    found: list[str] = re.findall(_PIECE, text)
    pieces: list[str] = []
    in_class = False
    for piece in found:
        if in_class and piece in _PLAIN_IN_CLASS:
            pieces.append("\\" + piece)
            continue
        if piece in {"[", "]"}:
            in_class = piece == "["
        pieces.append(_ESCAPES.get(piece, piece))
    return "".join(pieces)


# The limits of schemas, and of what one check may cost.


class CheckTooExpensive(Exception):
    """A check was given up that takes too long to be made in one go."""


MAX_BYTES: Final = 256 * 1024
"""The largest schema, as compact JSON."""
MAX_DEPTH: Final = 64
"""How deep arrays and objects of a schema may be nested."""
MAX_SUBSCHEMAS: Final = 10_000
"""The most schemas within one schema, itself included."""
MAX_STEPS: Final = 100_000
"""What one check may cost: about one step for each keyword at each value."""
MAX_FRAMES: Final = 600
"""How many frames of the stack the nested keywords of one check may take: Python has 1,000, and the caller some of them."""

QUICK_STEPS: Final = 2_000
"""What a check may cost that is made in one go: some ten milliseconds."""
QUICK_VALUES: Final = 2_000
"""How many values a value may hold for that."""
STEPS_WITHOUT_PAUSE: Final = 200
"""Steps after which a check that is made beside other work pauses: about a millisecond."""
