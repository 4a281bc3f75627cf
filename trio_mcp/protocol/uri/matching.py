"""The way back: which values would a template need to expand to this URI? In time linear in the URI, and safe in paths.

A URI comes from a peer. So there is no backtracking: one pass from the right finds for every position how far each part
may reach so that the rest still fits, one pass from the left takes the longest. And what a handler may use as a path
must not lead out of its directory, so values that would are no match at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, TypeAlias
from urllib.parse import quote, unquote

from .expressions import Expression, Operator, Part, Variable
from .uris import MAX_URI


@dataclass(frozen=True, slots=True)
class Field:
    """A stretch of the URI that one variable stands for, or all variables of an expression that writes their names.

    Attributes:
        operator: of the expression.
        variables: one, or more where names are written.
        lead: the character it begins with; empty when it begins with its value.
        excluded: characters that its text cannot hold.
        optional: whether it may be absent, because the variable may have been undefined.
        follows: whether an earlier field of the same expression must be there too.
        rooted: whether a path ends right before it, so that its value cannot be an absolute one.
    """

    operator: Operator
    variables: tuple[Variable, ...]
    lead: str
    excluded: frozenset[str]
    optional: bool
    follows: bool = False
    rooted: bool = False

    def ends(self, uri: str, fits: Sequence[bool]) -> list[int]:
        """For each position where its text might begin: the furthest end after which the rest fits, or -1."""
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


@dataclass(frozen=True, slots=True)
class _Literal:
    text: str

    def ends(self, uri: str, fits: Sequence[bool]) -> list[int]:
        found = [-1] * (len(uri) + 1)
        at = uri.find(self.text)
        while at >= 0:
            end = at + len(self.text)
            if fits[end]:
                found[at] = end
            at = uri.find(self.text, at + 1)
        return found


Stretch: TypeAlias = Field | _Literal


# From parts to fields

_PATH: Final = frozenset("/?#")


def fields(parts: Sequence[Part]) -> tuple[Stretch, ...]:
    """What `match` needs to know of a template.

    Raises:
        ValueError: two variables follow each other and nothing tells where one ends and the other begins.
    """
    stretches: list[Stretch] = []
    for position, part in enumerate(parts):
        if isinstance(part, str):
            stretches.append(_Literal(part))
        else:
            stretches += _fields_of(part, rooted=position > 0 and _ends_a_path(parts[position - 1]))
    return tuple(_told_apart(stretches, at) for at in range(len(stretches)))


def _ends_a_path(part: Part) -> bool:
    """A slash that an absolute path must not follow; after `file://` one may."""
    return isinstance(part, str) and part.endswith("/") and not part.endswith("://")


def _fields_of(expression: Expression, rooted: bool) -> Iterator[Field]:
    operator, variables = expression.operator, expression.variables
    if operator.named:
        excluded = _PATH if operator.symbol == ";" else frozenset("#")
        yield Field(operator, variables, operator.first, excluded, optional=True)
        return
    for position, variable in enumerate(variables):
        yield Field(
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


def _told_apart(stretches: Sequence[Stretch], at: int) -> Stretch:
    """The stretch, without the characters that begin what may follow it directly."""
    field = stretches[at]
    if not isinstance(field, Field):
        return field
    for other in stretches[at + 1 :]:
        if not isinstance(other, Field):
            break
        if other.follows:
            continue
        if not field.operator.named and other.lead and other.lead in "?#;&":
            field = replace(field, excluded=field.excluded | {other.lead})
        if not other.lead or other.lead not in field.excluded:
            names = f"{field.variables[-1].name!r} and {other.variables[0].name!r}"
            raise ValueError(f"The variables {names} of a URI template cannot be told apart: put text between them.")
    return field


# Matching


def match(stretches: Sequence[Stretch], uri: str) -> dict[str, str] | None:
    """The values by name, or None. A variable that was undefined is left out."""
    if len(uri) > MAX_URI:
        return None
    ascii_uri = _ascii(uri)
    texts = None if ascii_uri is None else _texts(stretches, ascii_uri)
    return None if texts is None else _values(stretches, texts)


_BEYOND_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


def _ascii(uri: str) -> str | None:
    """With characters beyond ASCII encoded, as an expansion would have it; None when it is too long then."""
    if uri.isascii():
        return uri
    try:
        ascii_bytes, all_bytes = len(uri.encode("ascii", "ignore")), len(uri.encode())
    except UnicodeEncodeError:  # half a surrogate pair
        return None
    if ascii_bytes + 3 * (all_bytes - ascii_bytes) > MAX_URI:
        return None
    return _BEYOND_ASCII.sub(lambda found: quote(found[0]), uri)


def _texts(stretches: Sequence[Stretch], uri: str) -> list[str] | None:
    fits: Sequence[bool] = [False] * len(uri) + [True]
    reaches: list[list[int]] = []
    for stretch in reversed(stretches):
        reaches.append(stretch.ends(uri, fits))
        fits = [end >= 0 for end in reaches[-1]]
    if not fits[0]:
        return None
    bounds = [0]
    for reach in reversed(reaches):
        bounds.append(reach[bounds[-1]])
    return [uri[start:end] for start, end in pairwise(bounds)]


def _values(stretches: Sequence[Stretch], texts: Sequence[str]) -> dict[str, str] | None:
    values: dict[str, str] = {}
    before = ""
    for stretch, text in zip(stretches, texts, strict=True):
        if isinstance(stretch, Field):
            if text and stretch.follows and not before:
                return None
            if text and not _read(stretch, text.removeprefix(stretch.lead), values):
                return None
        before = text
    return values


def _read(field: Field, text: str, values: dict[str, str]) -> bool:
    """Put what a text says into `values`; False when it says nothing that an expansion could have written."""
    if not field.operator.named:
        return _take(field, field.variables[0], text, values)
    known = {variable.name: variable for variable in field.variables}
    pairs: dict[str, list[str]] = {}
    for pair in text.split(field.operator.separator):
        name, equals, value = pair.partition("=")
        if name not in known or not (equals or not field.operator.if_empty):
            return False
        pairs.setdefault(name, []).append(value)
    return all(
        (len(items) == 1 or known[name].explode) and _take(field, known[name], ",".join(items), values)
        for name, items in pairs.items()
    )


def _take(field: Field, variable: Variable, text: str, values: dict[str, str]) -> bool:
    exploded_path = field.operator.symbol == "/" and variable.explode
    if exploded_path and "%2F" in text.upper():
        return False  # it would look like a separator once it is decoded
    value = _decoded(text)
    if value is None or not _is_safe(value, _may_hold_paths(field.operator) or exploded_path):
        return False
    if field.rooted and value.startswith("/"):
        return False
    if variable.prefix is not None and len(value) > variable.prefix:
        return False
    return _agrees(variable, value, values)


def _agrees(variable: Variable, value: str, values: dict[str, str]) -> bool:
    """A variable that occurs twice has one value; of a prefix and the whole, the whole counts."""
    known = values.setdefault(variable.name, value)
    if len(value) > len(known):
        values[variable.name] = value
    return value.startswith(known) or known.startswith(value)


# Values

_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NEVER: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\\]")
_SEPARATORS: Final = re.compile(r"[/\\]")
_FURTHER_DECODINGS: Final = 3


def _may_hold_paths(operator: Operator) -> bool:
    return operator.reserved or operator.symbol in {"?", "&"}


def _decoded(text: str) -> str | None:
    """Decoded once; None for a broken triplet, and for what is not UTF-8."""
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
        # A handler, or what it calls, may decode again.
        value = unquote(value)
    return {".", ".."}.isdisjoint(_SEPARATORS.split(value))
