"""URI templates (RFC 6570): which values a client asks for with a URI of a resource template (L-RES-2s)."""

from __future__ import annotations

from .expressions import Expression, parse_template
from .matching import VariableSegment, match, to_filter, to_segments
from .uris import ascii_uri


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
