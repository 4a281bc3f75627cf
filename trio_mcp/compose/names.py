"""The namespaces of the servers of a group, and which tools a program wants of those that servers offer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from ..base.checks import check_instance, mistake
from ..errors import ConfigurationError
from ..protocol.uri.namespaces import PREFIX, Namespace
from ..types import Tool

# A name belongs to the server with the longest prefix that begins it. So a server "git" cannot pass one of its tools off as one
# of the server "git_hub", and a call needs no list to find its server.


REPLACED: Final = re.compile(r"[^A-Za-z0-9-]")
MAX_PREFIX: Final = 64


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
        if chosen and not PREFIX.fullmatch(chosen):
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


# Which tools a program wants of those that servers offer.

ToolSelection: TypeAlias = Iterable[str] | Callable[[Tool], bool]
"""Names of tools, in which `*` and `?` stand for any characters; or a function that returns whether a tool is selected."""


class ToolFilter:
    """Lets through the tools of `only`, apart from those of `without`.

    Args:
        only: the tools to use; None for all.
        without: the tools not to use.

    Raises:
        TypeError: an argument is neither names nor a function.
    """

    __slots__ = ("_only", "_without")

    def __init__(self, only: ToolSelection | None = None, without: ToolSelection | None = None) -> None:
        self._only = None if only is None else _selection("only", only)
        self._without = None if without is None else _selection("without", without)

    def allows(self, tool: Tool) -> bool:
        """Return whether a tool may be used."""
        if self._only is not None and not _selects(self._only, tool.name, tool):
            return False
        return self._without is None or not _selects(self._without, tool.name, tool)

    def allows_name(self, name: str) -> bool | None:
        """Return whether a tool of this name may be used; None if that depends on more than its name."""
        needs_tool = False
        for selection, wanted in ((self._only, True), (self._without, False)):
            if callable(selection):
                needs_tool = True
            elif selection is not None and _matches(selection, name) is not wanted:
                return False
        return None if needs_tool else True

    @property
    def is_open(self) -> bool:
        """Whether it lets every tool through."""
        return self._only is None and not self._without

    def unmatched(self, names: Iterable[str]) -> list[str]:
        """Return the names of this filter, without wildcards, that no tool has: they may be misspelt."""
        known = set(names)
        literal = [
            name
            for selection in (self._only, self._without)
            if selection is not None and not callable(selection)
            for name in selection
            if not any(wildcard in name for wildcard in "*?[")
        ]
        return [name for name in literal if name not in known]


def _selection(name: str, given: ToolSelection) -> tuple[str, ...] | Callable[[Tool], bool]:
    if callable(given):
        return given
    expected = 'names of tools, such as ["find", "files_*"], or a function of a tool'
    # A string is an iterable of strings, and `only="find"` would be four of them.
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(mistake(name, expected, given))
    return tuple(check_instance(f"each item of {name}", each, str, "the name of a tool") for each in given)


def _selects(selection: tuple[str, ...] | Callable[[Tool], bool], name: str, tool: Tool) -> bool:
    if not callable(selection):
        return _matches(selection, name)
    chosen: object = selection(tool)
    if not isinstance(chosen, bool):
        raise TypeError(mistake("a filter of tools", "a function that returns True or False", chosen))
    return chosen


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
