"""The names that the tools, prompts and resources of one server have among those of others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""A prefix that may be chosen."""
SCHEME: Final = re.compile(r"((?:[A-Za-z0-9+.-]|\{[^{}]*\})+):(//)?")
"""The scheme of a URI, or of a template, in which it may be a variable."""


@dataclass(frozen=True, slots=True, eq=False)
class Namespace:
    """The names of one server among others: a tool or prompt becomes `prefix_name`, a URI `scheme://prefix/rest`.

    Attributes:
        prefix: begins them; empty for the names that they have at the server.
    """

    prefix: str

    def outer_name(self, own: str, /) -> str:
        """Return the name, among others, of a tool or prompt that the server calls `own`."""
        return f"{self.prefix}_{own}" if self.prefix else own

    def own_name(self, name: str, /) -> str | None:
        """Return the server's own name of a tool or prompt; None if it is not one of this server."""
        if not self.prefix:
            return name
        own = name.removeprefix(f"{self.prefix}_")
        return own if own and own != name else None

    def outer_uri(self, own: str, /) -> str:
        """Return the URI, or the template, among others, of what the server has at `own`."""
        found = SCHEME.match(own) if self.prefix else None
        # A template that is a variable as a whole has no place for the prefix.
        return own if found is None else f"{found[0]}{self.prefix}/{own[found.end() :]}"

    def own_uri(self, uri: str, /) -> str | None:
        """Return the server's own URI of a resource; None if it is not one of this server."""
        if not self.prefix:
            return uri
        found = SCHEME.match(uri)
        start = f"{self.prefix}/"
        if found is None or not uri.startswith(start, found.end()):
            return None
        return found[0] + uri[found.end() + len(start) :]
