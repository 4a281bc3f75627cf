"""A server as the file of a host has it: reading its member, expanding variables in it, and writing one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from ...json_value import JsonValue
from ..errors import CommandError, Status

VARIABLE: Final = re.compile(r"\$\{(?P<braced>[^}]*)\}|\$(?P<bare>[A-Za-z_]\w*)")
"""`${NAME}`, `${NAME:-default}` (Claude Code), `${env:NAME}` (Cursor, VS Code) and `$NAME` (Gemini CLI)."""

PREDEFINED: Final[Mapping[str, Callable[[], str]]] = {
    "workspaceFolder": os.getcwd,
    "userHome": lambda: str(Path.home()),
    "pathSeparator": lambda: os.sep,
}
"""Variables of hosts that are not in the environment."""

Style: TypeAlias = Literal["typed", "plain", "gemini", "goose"]
"""How a host writes a server: with a member `type`, without one, or in a way of its own."""


@dataclass(frozen=True)
class CommandEntry:
    """A command that the host starts.

    Attributes:
        enabled: False if the host does not start it.
    """

    name: str
    command: str
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    enabled: bool = True

    def expanded(self) -> CommandEntry:
        """Return the entry with the values of its variables. Raises `CommandError` for one that is not set."""
        fill = expander(self.name)
        return replace(
            self,
            command=fill(self.command),
            arguments=tuple(map(fill, self.arguments)),
            env={name: fill(value) for name, value in self.env.items()},
            cwd=None if self.cwd is None else fill(self.cwd),
        )


@dataclass(frozen=True)
class UrlEntry:
    """A server that the host reaches by its URL; otherwise as `CommandEntry`."""

    name: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True

    def expanded(self) -> UrlEntry:
        """Return the entry with the values of its variables. Raises `CommandError` for one that is not set."""
        fill = expander(self.name)
        headers = {name: fill(value) for name, value in self.headers.items()}
        return replace(self, url=fill(self.url), headers=headers)


Entry: TypeAlias = CommandEntry | UrlEntry


def read_entry(name: str, member: JsonValue) -> Entry | None:
    """Return a server of any host's file; None if the member is not one (goose lists what is built in, too)."""
    if not isinstance(member, dict):
        return None
    enabled = member.get("enabled", True) is not False and member.get("disabled") is not True
    command = first_text(member, "command", "cmd")
    if command is not None:
        listed = member.get("args")
        arguments = tuple(map(str, listed)) if isinstance(listed, list) else ()
        env = texts(member.get("env")) | texts(member.get("envs"))
        return CommandEntry(name, command, arguments, env, first_text(member, "cwd"), enabled)
    url = first_text(member, "url", "httpUrl", "serverUrl", "uri")
    return None if url is None else UrlEntry(name, url, texts(member.get("headers")), enabled)


def first_text(member: Mapping[str, JsonValue], *names: str) -> str | None:
    return next((value for name in names if isinstance(value := member.get(name), str) and value), None)


def texts(value: JsonValue) -> dict[str, str]:
    """Return the members of an object as texts: hosts take numbers there, too."""
    members = value.items() if isinstance(value, dict) else ()
    return {name: each if isinstance(each, str) else str(each) for name, each in members}


def expander(name: str) -> Callable[[str], str]:
    """Return what replaces variables in a text of the server `name`."""

    def value_of(found: re.Match[str]) -> str:
        variable, _, default = (found["braced"] or found["bare"] or "").removeprefix("env:").partition(":-")
        if variable in PREDEFINED:
            return PREDEFINED[variable]()
        if (value := os.environ.get(variable)) is not None:
            return value
        if default or ":-" in found[0]:
            return default
        if variable.startswith("input:"):
            raise CommandError(
                f"the server {name!r} needs {found[0]}, which only its host asks for", Status.UNREACHABLE
            )
        raise CommandError(f"the server {name!r} needs the environment variable {variable}", Status.UNREACHABLE)

    return lambda text: VARIABLE.sub(value_of, text)


def as_member(entry: Entry, style: Style) -> dict[str, JsonValue]:
    """Return a server as a host writes it. Members that would be empty are left out."""
    match entry, style:
        case CommandEntry(), "goose":
            return {
                **goose_head(entry.name, "stdio"),
                "cmd": entry.command,
                "args": list(entry.arguments),
                "envs": dict(entry.env),
            }
        case UrlEntry(), "goose":
            return {**goose_head(entry.name, "streamable_http"), "uri": entry.url, "headers": dict(entry.headers)}
        case CommandEntry(), _:
            kind = {"type": "stdio"} if style == "typed" else {}
            cwd = {} if entry.cwd is None else {"cwd": entry.cwd}
            env = without_empty(env=entry.env)
            return {**kind, "command": entry.command, "args": list(entry.arguments), **env, **cwd}
        case UrlEntry(), "gemini":
            return {"httpUrl": entry.url, **without_empty(headers=entry.headers)}
        case UrlEntry(), _:
            kind = {"type": "http"} if style == "typed" else {}
            return {**kind, "url": entry.url, **without_empty(headers=entry.headers)}


def goose_head(name: str, kind: str) -> dict[str, JsonValue]:
    # 300 seconds are what goose itself writes.
    return {"name": name, "type": kind, "enabled": True, "description": "", "timeout": 300}


def without_empty(**members: Mapping[str, str]) -> dict[str, JsonValue]:
    return {name: dict(value) for name, value in members.items() if value}
