"""Where each host keeps its servers, by the documentation of the hosts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from ...base.values import JsonValue
from ...mcp_json import CommandServer, HostServer, UrlServer

# Writing a server as a host has it in its file; `mcp_json` reads them.

Style: TypeAlias = Literal["typed", "plain", "gemini", "goose"]
"""How a host writes a server: with a member `type`, without one, or in a format that no other host uses."""


def as_member(entry: HostServer, style: Style) -> dict[str, JsonValue]:
    """Return a server as a host writes it. Members that would be empty are left out."""
    match entry, style:
        case CommandServer(), "goose":
            return {
                **goose_head(entry.name, "stdio"),
                "cmd": entry.command[0],
                "args": list(entry.command[1:]),
                "envs": dict(entry.env),
            }
        case UrlServer(), "goose":
            return {**goose_head(entry.name, "streamable_http"), "uri": entry.url, "headers": dict(entry.headers)}
        case CommandServer(), _:
            kind = {"type": "stdio"} if style == "typed" else {}
            cwd = {} if entry.cwd is None else {"cwd": entry.cwd}
            env = without_empty(env=entry.env)
            return {**kind, "command": entry.command[0], "args": list(entry.command[1:]), **env, **cwd}
        case UrlServer(), "gemini":
            return {"httpUrl": entry.url, **without_empty(headers=entry.headers)}
        case UrlServer(), _:
            kind = {"type": "http"} if style == "typed" else {}
            return {**kind, "url": entry.url, **without_empty(headers=entry.headers)}


def goose_head(name: str, kind: str) -> dict[str, JsonValue]:
    # 300 seconds are what goose itself writes.
    return {"name": name, "type": kind, "enabled": True, "description": "", "timeout": 300}


def without_empty(**members: Mapping[str, str]) -> dict[str, JsonValue]:
    return {name: dict(value) for name, value in members.items() if value}


Scope: TypeAlias = Literal["user", "project"]
Paths: TypeAlias = Callable[[], Path]
Syntax: TypeAlias = Literal["json", "comments", "jsonc"]
"""What a host reads beside plain JSON: nothing, comments, or comments and trailing commas."""


@dataclass(frozen=True)
class Location:
    """One file of a host.

    Attributes:
        scope: "user" for all folders, "project" for the current one.
    """

    path: Path
    scope: Scope


@dataclass(frozen=True)
class Host:
    """A program with a model that connects to servers.

    Attributes:
        title: its name for a person.
        members: the names under one of which a file has the servers; the first is the one to write.
        style: how it writes a server.
        takes_urls: False if its file can only have commands.
        folders: the member of its file that has servers for single folders.
        syntax: what it reads; of a host whose documentation does not say, plain JSON.
        note: what a user has to do or to know after a server was added.
        project_note: the same for the file of a project, if that differs.
        documentation: the page that says all this.
    """

    name: str
    title: str
    members: Sequence[str]
    style: Style
    user: Paths | None
    project: str | None
    note: str
    documentation: str
    takes_urls: bool = True
    folders: str | None = None
    syntax: Syntax = "json"
    project_note: str = ""

    def files(self) -> list[Location]:
        """Return where its files are on this machine, for this folder; none of them needs to exist."""
        found = [] if self.project is None else [Location(Path.cwd() / self.project, "project")]
        return found if self.user is None else [*found, Location(self.user(), "user")]

    def file(self, scope: Scope | None = None) -> Path | None:
        """Return its file of this scope, by default the one for all folders; None if it has none."""
        places = {each.scope: each.path for each in self.files()}
        return places.get(scope) if scope else places.get("user", places.get("project"))


def settings_folder() -> Path:
    """Return the folder in which programs keep the settings of a user."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return roaming_folder()
    return xdg_folder()


def roaming_folder() -> Path:
    given = os.environ.get("APPDATA")
    return Path(given) if given else Path.home() / "AppData" / "Roaming"


def xdg_folder() -> Path:
    given = os.environ.get("XDG_CONFIG_HOME")
    return Path(given) if given else Path.home() / ".config"


def claude_code_file() -> Path:
    given = os.environ.get("CLAUDE_CONFIG_DIR")
    return (Path(given) if given else Path.home()) / ".claude.json"


def goose_file() -> Path:
    # It has one place on macOS and Linux, where other programs have two.
    if sys.platform == "win32":
        return roaming_folder() / "Block" / "goose" / "config" / "config.yaml"
    return xdg_folder() / "goose" / "config.yaml"


_HOSTS = (
    Host(
        "claude-code",
        "Claude Code",
        ("mcpServers",),
        "typed",
        claude_code_file,
        ".mcp.json",
        "Start a new session; /mcp shows its servers.",
        "https://code.claude.com/docs/en/mcp",
        folders="projects",
        project_note="Start a new session, which asks you to approve a server of the project; /mcp shows its servers.",
    ),
    Host(
        "claude-desktop",
        "Claude Desktop",
        ("mcpServers",),
        "plain",
        lambda: settings_folder() / "Claude" / "claude_desktop_config.json",
        None,
        "Quit Claude Desktop and start it again.",
        "https://modelcontextprotocol.io/docs/develop/connect-local-servers",
        takes_urls=False,
    ),
    Host(
        "cursor",
        "Cursor",
        ("mcpServers",),
        "plain",
        lambda: Path.home() / ".cursor" / "mcp.json",
        ".cursor/mcp.json",
        "Enable the server in the settings of Cursor, if it asks for that.",
        "https://cursor.com/docs/context/mcp",
    ),
    Host(
        "vscode",
        "VS Code",
        ("servers",),
        "typed",
        lambda: settings_folder() / "Code" / "User" / "mcp.json",
        ".vscode/mcp.json",
        "Run `MCP: List Servers` in VS Code to start the server.",
        "https://code.visualstudio.com/docs/copilot/reference/mcp-configuration",
        # https://code.visualstudio.com/docs/languages/json#_json-with-comments
        syntax="jsonc",
    ),
    Host(
        "gemini-cli",
        "Gemini CLI",
        ("mcpServers",),
        "gemini",
        lambda: Path.home() / ".gemini" / "settings.json",
        ".gemini/settings.json",
        "Start a new session in a trusted folder: elsewhere it starts no servers. /mcp shows them.",
        "https://geminicli.com/docs/tools/mcp-server",
        # https://github.com/google-gemini/gemini-cli/pull/422
        syntax="comments",
    ),
    Host(
        "goose",
        "goose",
        ("extensions",),
        "goose",
        goose_file,
        None,
        "Start a new session.",
        "https://block.github.io/goose/docs/guides/config-files",
    ),
    Host(
        "mcp-json",
        "a file mcp.json",
        ("mcpServers", "servers"),
        "plain",
        None,
        "mcp.json",
        "Give the file to a host, or name its server on this command line as mcp.json:NAME.",
        "https://gofastmcp.com/integrations/mcp-json-configuration",
        # As `trio_mcp.mcp_json` reads it.
        syntax="jsonc",
    ),
)

HOSTS: Final[Mapping[str, Host]] = {each.name: each for each in _HOSTS}
"""The hosts by their names on the command line."""
