"""Servers in the files of hosts, as the targets of commands: `mcp.json:name` and `cursor:name`."""

from __future__ import annotations

from pathlib import Path

from ...mcp_json import CommandServer, FoundServer, UrlServer
from ..command import CommandError, Status
from ..hosts import HOSTS, Host, read_entries
from .target import CommandTarget, Target, UrlTarget


def find(where: str, name: str) -> Target | None:
    """Return the server of that name in a file or in the files of a host; None if there is no such host.

    Args:
        name: empty for the only server of a file.

    Raises:
        CommandError: there is no such file or server, or a variable that the server needs is not set.
    """
    if where.endswith(".json"):
        return entry_target(Path(where), HOSTS["mcp-json"], name)
    if host := HOSTS.get(where):
        if not name:
            raise CommandError(
                f"name one of its servers, as {where}:name; `trio-mcp discover --host {where}` lists them"
            )
        files = [file.path for file in host.files() if file.path.exists()]
        for file in files:
            if any(entry.name == name for entry in read_entries(file, host)):
                return entry_target(file, host, name)
        looked = ", ".join(map(str, files)) or "it has no files here"
        raise CommandError(f"{where} has no server {name!r} ({looked})", Status.UNREACHABLE)
    return None


def texts_of(text: str) -> list[str]:
    """Return the targets that a text names: of a file of several servers without a name, `FILE.json:name` for each."""
    names = [entry.name for entry in read_entries(Path(text), HOSTS["mcp-json"]) if entry.enabled]
    return [f"{text}:{name}" for name in names] if len(names) > 1 else [text]


def entry_target(file: Path, host: Host, name: str) -> Target:
    """Return the server of that name in a file, or its only one. Raises `CommandError`."""
    entries = read_entries(file, host, expand=True)
    found = [entry for entry in entries if entry.name == name or not name]
    if len(found) != 1:
        names = ", ".join(f"{file}:{entry.name}" for entry in entries)
        what = f"{file} has no server {name!r}" if name else f"{file} has {len(entries) or 'no'} servers"
        raise CommandError(f"{what}; choose one of: {names}" if names else what, Status.UNREACHABLE)
    return target_of(found[0])


def target_of(entry: FoundServer) -> Target:
    """Return a server of a file. Raises `CommandError` if it cannot be read, or a variable that it needs is not set."""
    match entry.server:
        case CommandServer(command=command, env=env, cwd=cwd):
            return CommandTarget(command, env, cwd)
        case UrlServer(url=url, headers=headers, oauth=oauth):
            return UrlTarget(url, headers, oauth)
    raise CommandError(f"the server {entry.name!r}: {entry.error}", Status.UNREACHABLE) from entry.error
