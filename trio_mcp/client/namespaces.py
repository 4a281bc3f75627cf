"""The names that the tools, prompts and resources of one server have in a group of servers."""

# The rule is that of `server.mount`: a tool or prompt becomes `prefix_name`, a URI `scheme://prefix/rest`. A name belongs to the
# server with the longest prefix that begins it. So a server "git" cannot pass one of its tools off as one of the server
# "git_hub", and a call needs no list to find its server.

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ..errors import ConfigurationError

PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}|")
"""A prefix that may be chosen; empty for none."""
REPLACED: Final = re.compile(r"[^A-Za-z0-9-]")
MAX_PREFIX: Final = 64
SCHEME: Final = re.compile(r"((?:[A-Za-z0-9+.-]|\{[^{}]*\})+):(//)?")
"""The scheme of a URI, or of a template, in which it may be a variable."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """The names of one server in a group.

    Attributes:
        prefix: begins them; empty for the names that they have at the server.
    """

    prefix: str

    def name(self, own: str) -> str:
        """Return the name in the group of a tool or prompt that the server calls `own`."""
        return f"{self.prefix}_{own}" if self.prefix else own

    def own_name(self, name: str) -> str | None:
        """Return the server's own name of a tool or prompt of the group; None if it is not one of this server."""
        if not self.prefix:
            return name
        own = name.removeprefix(f"{self.prefix}_")
        return own if own and own != name else None

    def uri(self, own: str) -> str:
        """Return the URI, or the template, in the group of what the server has at `own`."""
        found = SCHEME.match(own) if self.prefix else None
        # A template that is a variable as a whole has no place for the prefix.
        return own if found is None else f"{found[0]}{self.prefix}/{own[found.end() :]}"

    def own_uri(self, uri: str) -> str | None:
        """Return the server's own URI of a resource of the group; None if it is not one of this server."""
        if not self.prefix:
            return uri
        found = SCHEME.match(uri)
        start = f"{self.prefix}/"
        if found is None or not uri.startswith(start, found.end()):
            return None
        return found[0] + uri[found.end() + len(start) :]


def namespaces(prefixes: Mapping[str, str | None]) -> dict[str, Namespace]:
    """Return the namespaces of the servers of a group, by their names.

    Args:
        prefixes: those that were chosen; None makes one of the server's name, with `_` for what no model accepts in a name.

    Raises:
        ConfigurationError: two servers have one prefix.
        ValueError: a chosen prefix has a character that names of tools or URIs cannot have.
    """
    made: dict[str, Namespace] = {}
    owners: dict[str, str] = {}
    for server, chosen in prefixes.items():
        prefix = REPLACED.sub("_", server)[:MAX_PREFIX] if chosen is None else chosen
        if chosen is not None and not PREFIX.fullmatch(chosen):
            raise ValueError(
                f"the prefix {chosen!r:.80} must have 1 to 64 letters, digits, '.', '_' and '-', or be empty"
            )
        other = owners.setdefault(prefix, server)
        if other != server:
            raise ConfigurationError(
                f"the servers {other!r} and {server!r} have the same prefix, {prefix!r}; choose another for one of them, "
                "with GroupServer(prefix=...)"
            )
        made[server] = Namespace(prefix)
    return made


def longest_first(spaces: Mapping[str, Namespace]) -> list[str]:
    """Return the servers in the order in which a name is looked for among them."""
    return sorted(spaces, key=lambda server: len(spaces[server].prefix), reverse=True)


def shown(servers: Iterable[str]) -> str:
    """Return the names of servers for an error."""
    return ", ".join(f"{server!r:.80}" for server in servers) or "none"
