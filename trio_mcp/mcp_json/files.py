"""A host's file with its servers."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from ..base.checks import check_str_mapping, nearest
from ..base.regular_files import MAX_CONFIGURATION, FileTooLarge, NotRegularFile, read_regular
from ..base.values import JsonValue
from ..errors import ConfigurationError
from .entries import HostServer, as_entries, read_servers
from .variables import Variables

# JSON with comments and trailing commas, as editors write it.

# What does not end takes the rest of the text: else each quote or "/*" in it would be tried to the end, in quadratic time.
STRING: Final = r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)'
COMMENT: Final = r"//[^\r\n]*+|/\*.*?(?:\*/|(?P<open>\Z))"
COMMENTS: Final = re.compile(rf"{STRING}|{COMMENT}", re.DOTALL)
# A comma without a value before it stays, so that it is an error.
TRAILING_COMMAS: Final = re.compile(rf"{STRING}|[\[{{,:]\s*+,|,(?=\s*+[}}\]])", re.DOTALL)


def parse_jsonc(text: str, source: str) -> JsonValue:
    """Return the value of a text.

    Args:
        source: names the text in errors.

    Raises:
        ConfigurationError: it is not JSON, or an object has a member twice.
    """

    def unique(members: Sequence[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        found: dict[str, JsonValue] = {}
        for name, value in members:
            if name in found:
                raise ConfigurationError(f"{source}: an object has {name!r} twice")
            found[name] = value
        return found

    plain = without_trailing_commas(without_comments(text))
    try:
        return cast("JsonValue", json.loads(plain, object_pairs_hook=unique))
    except json.JSONDecodeError as error:
        raise ConfigurationError(
            f"{source}: not valid JSON at line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except ConfigurationError:
        raise
    except ValueError:
        # Python does not convert a longer one, which would take quadratic time.
        raise ConfigurationError(f"{source}: a number has more than {sys.get_int_max_str_digits()} digits") from None
    except RecursionError:
        raise ConfigurationError(f"{source}: its values are nested too deep") from None


def find_comments(text: str) -> list[tuple[int, int]]:
    """Return where each comment of a text begins and ends; the end of its line is not included."""
    return [match.span() for match in COMMENTS.finditer(text) if _is_comment(match)]


def without_comments(text: str) -> str:
    """Return a text with spaces in place of its comments, so that every other character stays at its line and column."""
    return COMMENTS.sub(lambda match: _blank(match[0]) if _is_comment(match) else match[0], text)


def without_trailing_commas(text: str) -> str:
    """Return a text, which must have no comments, with a space in place of each trailing comma."""
    return TRAILING_COMMAS.sub(lambda match: " " if match[0] == "," else match[0], text)


def _is_comment(match: re.Match[str]) -> bool:
    # What does not end stays, so that it is an error.
    return not match[0].startswith('"') and match["open"] is None


def _blank(comment: str) -> str:
    return re.sub(r"[^\r\n]", " ", comment)


MEMBERS: Final = ("mcpServers", "servers", "mcp", "context_servers")
"""The members that have the servers: of most hosts, of VS Code, of opencode, and of Zed."""


@dataclass(frozen=True, slots=True)
class McpJson:
    """The servers of a file.

    Attributes:
        source: the path of the file, for messages.
        servers: the servers that can be used, by their names.
        disabled: the names of those that the file turns off.
        errors: why a server cannot be used, by its name.
        warnings: what was ignored in the file, such as a member that is unknown.
    """

    source: str
    servers: Mapping[str, HostServer]
    disabled: frozenset[str] = frozenset()
    errors: Mapping[str, ConfigurationError] = field(default_factory=dict[str, ConfigurationError])
    warnings: tuple[str, ...] = ()

    def server(self, name: str) -> HostServer:
        """Return one server.

        Raises:
            ConfigurationError: the file has no such server, turns it off, or says too little about it.
        """
        if name in self.errors:
            raise ConfigurationError(*self.errors[name].args)
        if name in self.servers:
            return self.servers[name]
        if name in self.disabled:
            raise ConfigurationError(f"{self.source}: the server {name!r} is disabled")
        advice = nearest(name, self.servers) or f"it has {', '.join(self.servers) or 'none'}"
        raise ConfigurationError(f"{self.source} has no server {name!r}; {advice}")

    def check(self) -> None:
        """Raise `ConfigurationError` if a server that is not disabled cannot be used; the message has all that is wrong."""
        if self.errors:
            raise ConfigurationError("\n".join(str(error) for error in self.errors.values()))


def read_mcp_json(path: str | os.PathLike[str], *, variables: Mapping[str, str] | None = None) -> McpJson:
    """Return the servers of a host's file. It may have comments and trailing commas, as those of editors have.

    Args:
        variables: what `${NAME}` in the file stands for, by NAME; what is not in it is looked up in the environment.
            For `${input:token}`, VS Code asks its user: pass the value as "input:token".

    Raises:
        OSError: the file cannot be read.
        ConfigurationError: it is no regular file, is larger than 4 MiB, is not JSON, or has no servers. What is wrong with a
            single server is in `errors`.
    """
    source = Path(path)
    try:
        content = read_regular(source, MAX_CONFIGURATION)
    except (NotRegularFile, FileTooLarge) as error:
        raise ConfigurationError(f"{source}: {error.strerror}") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{source}: this is no UTF-8: {error}") from None
    return parse_mcp_json(text, str(source), folder=source.absolute().parent, variables=variables)


def parse_mcp_json(
    text: str, source: str, *, folder: Path | None = None, variables: Mapping[str, str] | None = None
) -> McpJson:
    """Return the servers in the text of a host's file, as `read_mcp_json` does.

    Args:
        source: names the text in messages.
        folder: what relative paths in it are relative to; by default the working directory.
    """
    given = check_str_mapping("variables", variables or {})
    known = Variables(given, os.environ, folder or Path.cwd())
    warnings: list[str] = []
    servers: dict[str, HostServer] = {}
    disabled: set[str] = set()
    errors: dict[str, ConfigurationError] = {}
    for found in read_servers(_find_entries(parse_jsonc(text, source), source, warnings), source, known, warnings):
        # What is wrong with a server that is turned off does not matter.
        if not found.enabled:
            disabled.add(found.name)
        elif found.server is not None:
            servers[found.name] = found.server
        elif found.error is not None:
            errors[found.name] = found.error
    return McpJson(source, servers, frozenset(disabled), errors, tuple(warnings))


def _entries_of(value: JsonValue, member: str, source: str) -> dict[str, JsonValue]:
    entries = as_entries(value, f"{source}: {member}")
    # The settings of VS Code have what its `mcp.json` has, one level deeper.
    if member == "mcp" and "servers" in entries:
        return as_entries(entries["servers"], f"{source}: mcp.servers")
    return entries


def _find_entries(value: JsonValue, source: str, warnings: list[str]) -> dict[str, JsonValue]:
    """Return the servers of all lists in a file, which several hosts may share; name the skipped ones in `warnings`."""
    if not isinstance(value, dict):
        raise ConfigurationError(f"{source} must be an object with the member 'mcpServers'")
    lists = [member for member in MEMBERS if member in value]
    entries: dict[str, JsonValue] = {}
    for member in lists:
        try:
            listed = _entries_of(value[member], member, source)
        except ConfigurationError as error:
            # It may be something else, beside the list of another host.
            if len(lists) == 1:
                raise
            warnings.append(f"{error}; it was ignored")
            continue
        warnings += [
            f"{source}: the server {name!r} of {member} was ignored: another list has one of that name"
            for name in listed
            if name in entries
        ]
        entries = {**listed, **entries}
    if lists:
        return entries
    found = ", ".join(f"{name!r}" for name in list(value)[:5]) or "nothing"
    advice = next((advice for name in value if (advice := nearest(name, MEMBERS))), "")
    raise ConfigurationError(f"{source} has no member 'mcpServers', but {found}{'; ' if advice else ''}{advice}")
