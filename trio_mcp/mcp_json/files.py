"""A host's file with its servers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..checks import check_str_mapping, nearest
from ..errors import ConfigurationError
from ..json_value import JsonValue
from ..regular_files import MAX_CONFIGURATION, FileTooLarge, NotRegularFile, read_regular
from .entries import HostServer, as_entries, read_servers
from .jsonc import parse_jsonc
from .variables import Variables

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
        variables: what `${NAME}` in the file stands for, by NAME; what is not in it is looked up in the environment. In VS Code's
            files `${input:token}` is asked by the editor: pass it as "input:token".

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
    for found in read_servers(_find_entries(parse_jsonc(text, source), source), source, known, warnings):
        # What is wrong with a server that is turned off does not matter.
        if not found.enabled:
            disabled.add(found.name)
        elif found.server is not None:
            servers[found.name] = found.server
        elif found.error is not None:
            errors[found.name] = found.error
    return McpJson(source, servers, frozenset(disabled), errors, tuple(warnings))


def _find_entries(value: JsonValue, source: str) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise ConfigurationError(f"{source} must be an object with the member 'mcpServers'")
    for member in MEMBERS:
        if member not in value:
            continue
        entries = as_entries(value[member], f"{source}: {member}")
        # The settings of VS Code have what its `mcp.json` has, one level deeper.
        if member == "mcp" and "servers" in entries:
            return as_entries(entries["servers"], f"{source}: mcp.servers")
        return entries
    found = ", ".join(f"{name!r}" for name in list(value)[:5]) or "nothing"
    advice = next((advice for name in value if (advice := nearest(name, MEMBERS))), "")
    raise ConfigurationError(f"{source} has no member 'mcpServers', but {found}{'; ' if advice else ''}{advice}")
