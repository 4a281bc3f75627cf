"""Matching, the inverse of expansion: find the values with which a template expands to a URI.

A URI comes from a peer, so matching takes time linear in the URI. A handler may use a value as a path, so a value that would lead
out of its directory is not a match.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias
from urllib.parse import unquote

from pydantic_core import SchemaValidator, core_schema

from ...base.named_tuples import NamedTuple
from .expressions import Expression, Operator, Part, Variable, parse_template
from .uris import ascii_uri

# There is no backtracking. A template is a sequence of segments. One pass from the right finds, for every segment and position,
# how far the segment may reach from there so that the rest still fits. One pass from the left then takes the furthest ends.
#
# Example: `/{a}.{b}` and the URI `/x.y.z`; each row says where the segment ends if it begins at that position (- if it cannot).
#
#   position   0  1  2  3  4  5  6
#   URI        /  x  .  y  .  z
#   {b}        -  6  6  6  6  6  -     any text, to the end
#   .          -  -  3  -  5  -  -     only where {b} can follow
#   {a}        -  4  4  4  -  -  -     to the last dot after which the rest fits
#   /          1  -  -  -  -  -  -
#
# From the left: `/` ends at 1, {a} at 4 (`x.y`), the dot at 5, {b} at 6 (`z`).
#
# These passes take a tenth of a microsecond for each segment and position. A server may have hundreds of templates, so that a
# regular expression without groups, which is a thousand times faster, first tells whether they would find anything.


class VariableSegment(NamedTuple):
    """A segment that holds the value of one variable, or of all variables of an expression that writes their names.

    Attributes:
        operator: the operator of the expression.
        variables: one, or several if names are written.
        lead: the character it begins with; empty if it begins with its value.
        excluded: characters that its text cannot hold.
        optional: whether it may be absent, because the variable may have been undefined.
        follows: whether an earlier segment of the same expression must be present too.
        rooted: whether a path ends right before it, so that its value cannot be an absolute path.
    """

    operator: Operator
    variables: tuple[Variable, ...]
    lead: str
    excluded: frozenset[str]
    optional: bool
    follows: bool = False
    rooted: bool = False

    def ends(self, uri: str, fits: Sequence[bool]) -> list[int]:
        """Return, for each position where the segment might begin, its furthest end after which the rest fits, or -1."""
        found = [-1] * (len(uri) + 1)
        reach = after = -1  # the furthest end for a value from here, and from the next character
        for at in range(len(uri), -1, -1):
            character = uri[at : at + 1]
            if character in self.excluded:
                reach = -1
            if reach < 0 and fits[at]:
                reach = at
            if not self.lead:
                found[at] = reach if reach > at else -1  # an empty value would leave no trace
            elif character == self.lead and after >= 0:
                found[at] = after
            elif self.optional and fits[at]:
                found[at] = at
            after = reach
        return found

    def regex(self) -> str:
        """Return the regular expression of the texts that `ends` finds."""
        value = "[^" + "".join(map(re.escape, sorted(self.excluded))) + "]" if self.excluded else "."
        if not self.lead:
            return value + "+"
        text = re.escape(self.lead) + value + "*"
        return f"(?:{text})?" if self.optional else text


@dataclass(frozen=True, slots=True)
class _LiteralSegment:
    text: str

    def regex(self) -> str:
        return re.escape(self.text)

    def ends(self, uri: str, fits: Sequence[bool]) -> list[int]:
        found = [-1] * (len(uri) + 1)
        at = uri.find(self.text)
        while at >= 0:
            end = at + len(self.text)
            if fits[end]:
                found[at] = end
            at = uri.find(self.text, at + 1)
        return found


Segment: TypeAlias = VariableSegment | _LiteralSegment


# From parts to segments

_PATH: Final = frozenset("/?#")


def to_segments(parts: Sequence[Part]) -> tuple[Segment, ...]:
    """Return the segments of a template, for `match`.

    Raises:
        ValueError: two variables follow each other, and nothing separates them.
    """
    segments: list[Segment] = []
    for position, part in enumerate(parts):
        if isinstance(part, str):
            segments.append(_LiteralSegment(part))
        else:
            segments += _segments_of(part, rooted=position > 0 and _ends_a_path(parts[position - 1]))
    return tuple(_disambiguate(segments, at) for at in range(len(segments)))


def _ends_a_path(part: Part) -> bool:
    """Return whether a part ends with a slash that an absolute path must not follow; after `file://` one may."""
    return isinstance(part, str) and part.endswith("/") and not part.endswith("://")


def _segments_of(expression: Expression, rooted: bool) -> Iterator[VariableSegment]:
    operator, variables = expression.operator, expression.variables
    if operator.named:
        excluded = _PATH if operator.symbol == ";" else frozenset("#")
        yield VariableSegment(operator, variables, operator.first, excluded, optional=True)
        return
    for position, variable in enumerate(variables):
        yield VariableSegment(
            operator,
            (variable,),
            operator.separator if position else operator.first,
            _excluded(operator, variable, alone=len(variables) == 1),
            optional=bool(operator.first),
            follows=position > 0,
            rooted=(rooted and operator.symbol == "+") or operator.symbol == "/",
        )


def _excluded(operator: Operator, variable: Variable, alone: bool) -> frozenset[str]:
    excluded = frozenset[str]() if operator.reserved else _PATH
    if operator.symbol == "/" and variable.explode:
        return excluded - {"/"}
    return excluded if alone else excluded | {operator.separator}


def _disambiguate(segments: Sequence[Segment], at: int) -> Segment:
    """Return the segment with those characters excluded that begin a segment which may follow it directly."""
    segment = segments[at]
    if not isinstance(segment, VariableSegment):
        return segment
    for other in segments[at + 1 :]:
        if not isinstance(other, VariableSegment):
            break
        if other.follows:
            continue
        if not segment.operator.named and other.lead and other.lead in "?#;&":
            segment = segment._replace(excluded=segment.excluded | {other.lead})
        if not other.lead or other.lead not in segment.excluded:
            names = f"{segment.variables[-1].name!r} and {other.variables[0].name!r}"
            raise ValueError(f"The variables {names} of a URI template are ambiguous: put text between them.")
    return segment


# Matching


def to_filter(segments: Sequence[Segment]) -> Callable[[str], bool]:
    """Return a function that tells whether a URI in ASCII is a sequence of these segments. It takes microseconds."""
    pattern = "^(?s:" + "".join(segment.regex() for segment in segments) + ")$"
    # The engine of pydantic_core does not backtrack; a string validator is the only door to it.
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python


def match(segments: Sequence[Segment], uri: str) -> dict[str, str] | None:
    """Return the values by name, without those that were undefined, or None if the URI, in ASCII, does not match."""
    texts = _texts(segments, uri)
    return None if texts is None else _values(segments, texts)


def _texts(segments: Sequence[Segment], uri: str) -> list[str] | None:
    fits: Sequence[bool] = [False] * len(uri) + [True]
    reaches: list[list[int]] = []
    for segment in reversed(segments):
        reaches.append(segment.ends(uri, fits))
        fits = [end >= 0 for end in reaches[-1]]
    if not fits[0]:
        return None
    bounds = [0]
    for reach in reversed(reaches):
        bounds.append(reach[bounds[-1]])
    return [uri[start:end] for start, end in pairwise(bounds)]


def _values(segments: Sequence[Segment], texts: Sequence[str]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    before = ""
    for segment, text in zip(segments, texts, strict=True):
        if isinstance(segment, VariableSegment):
            if text and segment.follows and not before:
                return None
            if text and not _read(segment, text.removeprefix(segment.lead), values):
                return None
        before = text
    return values


def _read(segment: VariableSegment, text: str, values: dict[str, str]) -> bool:
    """Add the values of a segment to `values`; return False if no expansion could have written this text."""
    if not segment.operator.named:
        return _take(segment, segment.variables[0], text, values)
    known = {variable.name: variable for variable in segment.variables}
    pairs: dict[str, list[str]] = {}
    for pair in text.split(segment.operator.separator):
        name, equals, value = pair.partition("=")
        if name not in known or not (equals or not segment.operator.if_empty):
            return False
        pairs.setdefault(name, []).append(value)
    return all(
        (len(items) == 1 or known[name].explode) and _take(segment, known[name], ",".join(items), values)
        for name, items in pairs.items()
    )


def _take(segment: VariableSegment, variable: Variable, text: str, values: dict[str, str]) -> bool:
    exploded_path = segment.operator.symbol == "/" and variable.explode
    # It would look like a separator once it is decoded.
    if exploded_path and "%2F" in text.upper():
        return False
    value = _decoded(text)
    if value is None or not _is_safe(value, _may_hold_paths(segment.operator) or exploded_path):
        return False
    if segment.rooted and value.startswith("/"):
        return False
    if variable.prefix is not None and len(value) > variable.prefix:
        return False
    return _bind(variable, value, values)


def _bind(variable: Variable, value: str, values: dict[str, str]) -> bool:
    """Add one value; return False if the variable has another already. Of a prefix and the whole value, the whole counts."""
    known = values.setdefault(variable.name, value)
    if len(value) > len(known):
        values[variable.name] = value
    return value.startswith(known) or known.startswith(value)


# Values

_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
# Control characters end or split names in many programs, and a backslash is a separator on Windows.
_NEVER: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")
_SEPARATORS: Final = re.compile(r"[/\\]")
_FURTHER_DECODINGS: Final = 3


def _may_hold_paths(operator: Operator) -> bool:
    return operator.reserved or operator.symbol in {"?", "&"}


def _decoded(text: str) -> str | None:
    """Return the text decoded once, or None if it has a broken triplet or is not UTF-8."""
    if _BROKEN.search(text):
        return None
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return None


def _is_safe(value: str, may_hold_paths: bool) -> bool:
    if _NEVER.search(value) or ("/" in value and not may_hold_paths):
        return False
    for _ in range(_FURTHER_DECODINGS):
        if not {".", ".."}.isdisjoint(_SEPARATORS.split(value)):
            return False
        # A handler, or what it calls, may decode again: `%252e%252e` is `..` to a proxy and a file system behind it.
        value = unquote(value)
    return {".", ".."}.isdisjoint(_SEPARATORS.split(value))


# URI templates (RFC 6570): which values a client asks for with a URI of a resource template (L-RES-2s).


class UriTemplate:
    """A template that finds the values in a URI that it was expanded with.

    Raises:
        ValueError: the text is not a template of RFC 6570, is longer than `MAX_TEMPLATE`, has more than `MAX_VARIABLES`, or
            has two variables that cannot be separated in a URI, as in `{a}{b}`; the message says what and where.

    Attributes:
        text: the template as it was written.
        variables: the names, in the order of their first occurrence.
        optional: those that a match may leave out, like those of `{?q}` and `{/path}`.
    """

    __slots__ = ("_fits", "_segments", "optional", "text", "variables")

    def __init__(self, text: str) -> None:
        self.text = text
        parts = parse_template(text)
        self._segments = to_segments(parts)
        self._fits = to_filter(self._segments)
        expressions = [part for part in parts if isinstance(part, Expression)]
        names = [variable.name for expression in expressions for variable in expression.variables]
        self.variables: tuple[str, ...] = tuple(dict.fromkeys(names))
        self.optional: frozenset[str] = frozenset(self.variables) - self._required()

    def __repr__(self) -> str:
        return f"<UriTemplate {self.text!r}>"

    def match(self, uri: str) -> dict[str, str] | None:
        """Return the values that expand to this URI, or None if there are none. Takes time linear in the URI.

        If several results are possible, an earlier variable takes as much as it can: `{name}.{type}` finds `a.b` and `c`
        in `a.b.c`. An undefined variable is left out. The values of a list are one string, with the separator between them.

        A value is decoded once. A value that is unsafe as a path is not a match: it never holds `\\` or a control character,
        none of its segments is `.` or `..`, however often encoded, and `/` only in `{+var}`, `{#var}`, `{/var*}`,
        `{?var}` and `{&var}`. `{+var}` after the `/` of a path and `{/var*}` are never absolute. A URI longer than `MAX_URI`,
        with what is not ASCII encoded, matches nothing.
        """
        encoded = ascii_uri(uri)
        return match(self._segments, encoded) if encoded is not None and self._fits(encoded) else None

    def steps(self, uri: str) -> int:
        """Return what `match` costs for a URI in ASCII, about a tenth of a microsecond each; 0 if its form does not fit."""
        return len(self._segments) * len(uri) if self._fits(uri) else 0

    # A variable that occurs twice is required if one of its occurrences is.
    def _required(self) -> set[str]:
        found = [segment for segment in self._segments if isinstance(segment, VariableSegment) and not segment.optional]
        return {variable.name for segment in found for variable in segment.variables}
