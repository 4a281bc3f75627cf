"""Writing a server as a host has it in its file; `mcp_json` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from ...json_value import JsonValue
from ...mcp_json import CommandServer, HostServer, UrlServer

Style: TypeAlias = Literal["typed", "plain", "gemini", "goose"]
"""How a host writes a server: with a member `type`, without one, or in a way of its own."""


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
