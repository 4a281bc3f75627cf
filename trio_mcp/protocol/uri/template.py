"""URI templates (RFC 6570): what a resource template is called by, and which of its URIs a client asks for (L-RES-2s)."""

from __future__ import annotations

from .expressions import Expression, parsed
from .matching import Field, fields, match


class UriTemplate:
    """A template that finds in a URI the values that it was expanded with.

    Raises:
        ValueError: the text is no template of RFC 6570, is longer than `MAX_TEMPLATE`, has more than `MAX_VARIABLES`, or
            has two variables that cannot be told apart in a URI, as in `{a}{b}`; the text says what and where.

    Attributes:
        text: the template as it was written.
        variables: the names, in the order of their first occurrence.
        optional: those that a match may leave out, like those of `{?q}` and `{/path}`.
    """

    __slots__ = ("_parts", "_stretches", "optional", "text", "variables")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = parsed(text)
        self._stretches = fields(self._parts)
        expressions = [part for part in self._parts if isinstance(part, Expression)]
        names = [variable.name for expression in expressions for variable in expression.variables]
        self.variables: tuple[str, ...] = tuple(dict.fromkeys(names))
        self.optional: frozenset[str] = frozenset(self.variables) - self._required()

    def __repr__(self) -> str:
        return f"<UriTemplate {self.text!r}>"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, UriTemplate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def match(self, uri: str) -> dict[str, str] | None:
        """The strings that expand to this URI, or None when none do. Takes time linear in the URI.

        Where more than one answer fits, an earlier variable takes as much as it can: `{name}.{type}` finds `a.b` and `c`
        in `a.b.c`. A variable that left nothing behind is left out. The values of a list are one string, with the
        separator between them.

        A value is decoded once. One that could lead astray is no match: it never holds `\\` or a control character,
        none of its segments is `.` or `..`, however often encoded, and `/` only in `{+var}`, `{#var}`, `{/var*}`,
        `{?var}` and `{&var}`. `{+var}` after the `/` of a path and `{/var*}` are never absolute. A URI longer than `MAX_URI`,
        with what is not ASCII encoded, matches nothing.
        """
        first, *_ = self._parts or ("",)
        if isinstance(first, str) and (uri.isascii() or "%" not in first) and not uri.startswith(first):
            return None
        return match(self._stretches, uri)

    def _required(self) -> set[str]:
        found = [field for field in self._stretches if isinstance(field, Field) and not field.optional]
        return {variable.name for field in found for variable in field.variables}
