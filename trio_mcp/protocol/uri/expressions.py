"""The grammar of URI templates (RFC 6570, all four levels): literal text, and expressions that values fill.

Section 3.2.1 of the RFC has the table of operators; sections 3.2.2 to 3.2.9 describe each.
"""

# Only the parser is here, and `matching` is its only user. A server matches URIs against its templates; the client that builds
# a URI from a template is another program. The tests implement expansion, as the oracle for matching.

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias
from urllib.parse import quote

from ...base.named_tuples import NamedTuple

MAX_TEMPLATE: Final = 8 * 1024
"""The longest template, in characters."""
MAX_VARIABLES: Final = 64
"""The most variables in one template; a name that occurs twice counts twice."""


class Operator(NamedTuple):
    """One row of the table: the first character of an expansion, the separator of its values, and how they are written.

    Attributes:
        named: each value is written with its name, as in `?q=x`.
        if_empty: what follows the name of an empty value.
        reserved: reserved characters are not percent-encoded.
    """

    symbol: str
    first: str
    separator: str = ","
    named: bool = False
    if_empty: str = ""
    reserved: bool = False


OPERATORS: Final[Mapping[str, Operator]] = {
    operator.symbol: operator
    for operator in (
        Operator("", ""),
        Operator("+", "", reserved=True),
        Operator("#", "#", reserved=True),
        Operator(".", ".", "."),
        Operator("/", "/", "/"),
        Operator(";", ";", ";", named=True),
        Operator("?", "?", "&", named=True, if_empty="="),
        Operator("&", "&", "&", named=True, if_empty="="),
    )
}


class Variable(NamedTuple):
    """A variable in an expression: its name, and the modifier `:n` (the first n characters) or `*` (each value separately)."""

    name: str
    prefix: int | None = None
    explode: bool = False


class Expression(NamedTuple):
    """The text between two braces, parsed."""

    operator: Operator
    variables: tuple[Variable, ...]


Part: TypeAlias = str | Expression
"""Literal text, percent-encoded as in a URI, or an expression."""


# The name is matched with possessive quantifiers (`++`, `*+`): a long name that is wrong at its end fails after one pass,
# instead of after trying every way to cut it in two.
_NAME = r"(?:\w|%[0-9A-Fa-f]{2})++(?:\.(?:\w|%[0-9A-Fa-f]{2})++)*+"
_VARIABLE: Final = re.compile(rf"({_NAME})(?::([1-9][0-9]{{0,3}})|(\*))?", re.ASCII)
_NO_LITERAL: Final = re.compile(r"[\x00-\x20\"<>\\^`|\x7f-\x9f]|%(?![0-9A-Fa-f]{2})")


def parse_template(text: str) -> tuple[Part, ...]:
    """Return the parts of a template.

    Raises:
        ValueError: the text is not a template, or exceeds a limit; the message says where and why.
    """
    if len(text) > MAX_TEMPLATE:
        raise ValueError(f"The URI template has {len(text)} characters; the limit is {MAX_TEMPLATE}.")
    parts = tuple(_parts(text))
    count = sum(len(part.variables) for part in parts if isinstance(part, Expression))
    if count > MAX_VARIABLES:
        raise ValueError(f"The URI template has {count} variables; the limit is {MAX_VARIABLES}.")
    return parts


_PIECE: Final = re.compile(r"(?P<literal>[^{]+)|\{(?P<inside>[^}]*)(?P<closed>\}?)")


def _parts(text: str) -> Iterator[Part]:
    for piece in _PIECE.finditer(text):
        if piece["literal"]:
            yield _literal(text, piece.start(), piece["literal"])
        elif piece["closed"]:
            yield _expression(text, piece.start(), piece["inside"])
        else:
            raise _flaw(text, piece.start(), "the brace is never closed")


def _literal(text: str, at: int, literal: str) -> str:
    if "}" in literal:
        raise _flaw(text, at + literal.index("}"), "the brace was never opened")
    if found := _NO_LITERAL.search(literal):
        raise _flaw(text, at + found.start(), f"{found[0]!r} cannot stand in a URI")
    return _encoded(literal)


def _expression(text: str, at: int, inside: str) -> Expression:
    operator = OPERATORS.get(inside[:1]) or OPERATORS[""]
    # Rejected and not taken as a part of the name: a later RFC may give these operators a meaning.
    if inside[:1] in {"=", ",", "!", "@", "|"}:
        raise _flaw(text, at, f"the operator {inside[0]!r} is reserved (RFC 6570, 2.2)")
    specs = inside.removeprefix(operator.symbol).split(",")
    return Expression(operator, tuple(_variable(text, at, spec) for spec in specs))


def _variable(text: str, at: int, spec: str) -> Variable:
    found = _VARIABLE.fullmatch(spec)
    if found is None:
        raise _flaw(text, at, f"{spec[:64]!r} is not a variable")
    name, prefix, explode = found.groups()
    return Variable(name, None if prefix is None else int(prefix), explode is not None)


def _flaw(text: str, at: int, reason: str) -> ValueError:
    return ValueError(f"The URI template {text[:128]!r} is malformed at character {at}: {reason}.")


_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_TRIPLET: Final = re.compile(r"(%[0-9A-Fa-f]{2})")


def _encoded(text: str) -> str:
    """Percent-encode what cannot stand in a URI. Reserved characters and existing triplets stay (RFC 6570, 3.1)."""
    # `split` with a group returns the triplets at the odd positions.
    return "".join(piece if at % 2 else quote(piece, safe=_RESERVED) for at, piece in enumerate(_TRIPLET.split(text)))
