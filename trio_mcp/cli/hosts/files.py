"""Reading the file of a host without losing anything that has to be written back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from ...json_value import JsonValue
from ..errors import CommandError, Status
from .entries import Entry, read_entry
from .table import Host

MAX_BYTES: Final = 50_000_000
"""Bytes of the largest file that is read; Claude Code keeps its history in the same one."""


@dataclass(frozen=True)
class ConfigFile:
    """The file of a host as it was read.

    Attributes:
        text: empty if there is no such file.
        document: what it says; of YAML the representation that keeps comments.
        servers: the member with the servers.
    """

    path: Path
    text: str
    document: dict[str, JsonValue]
    servers: dict[str, JsonValue]


def read_file(path: Path, host: Host) -> ConfigFile:
    """Return what a file says; an empty document if there is no such file.

    Raises:
        CommandError: it cannot be read or parsed, or has something else where servers should be.
    """
    text = file_text(path)
    document: object = {}
    if text.strip():
        document = yaml_document(path, text) if path.suffix in (".yaml", ".yml") else json_document(path, text)
    if not isinstance(document, dict):
        raise unreadable(path, "it is not an object")
    member = next((each for each in host.members if each in document), host.members[0])
    servers = document.get(member)
    if servers is None:
        servers = document[member] = {}
    if not isinstance(servers, dict):
        raise unreadable(path, f"{member} is not an object")
    return ConfigFile(path, text, document, servers)


def read_entries(path: Path, host: Host) -> list[Entry]:
    """Return the servers in a file. Raises `CommandError`, also if there is no such file."""
    if not path.is_file():
        raise CommandError(f"there is no file {path}", Status.UNREACHABLE)
    file = read_file(path, host)
    members = {**file.servers, **folder_servers(file, host)}
    found = [read_entry(name, member) for name, member in members.items()]
    return [entry for entry in found if entry is not None]


def folder_servers(file: ConfigFile, host: Host) -> dict[str, JsonValue]:
    """Return the servers for the current folder alone, which Claude Code has in its file for all folders."""
    folders = file.document.get(host.folders) if host.folders else None
    folder = folders.get(str(Path.cwd())) if isinstance(folders, dict) else None
    servers = folder.get(host.members[0]) if isinstance(folder, dict) else None
    return servers if isinstance(servers, dict) else {}


def file_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise unreadable(path, f"it has more than {MAX_BYTES} bytes")
        # Line ends stay as they are: the file is written again.
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise unreadable(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise unreadable(path, "it is not UTF-8") from error


def json_document(path: Path, text: str) -> object:
    try:
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise unreadable(path, f"{error}; JSON has no comments and no commas at the end") from error


def without_repeats(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) < len(members):
        # One of the two would be lost when the file is written.
        raise ValueError("a member occurs twice in an object")
    return found


def yaml_document(path: Path, text: str) -> object:
    parse = yaml_files(path).parse
    try:
        return parse(text)
    except ValueError as error:
        raise unreadable(path, str(error)) from error


def yaml_files(path: Path) -> ModuleType:
    """Return the module that reads and writes YAML. Raises `CommandError` if the package that it needs is not installed."""
    try:
        # Not at the top: only the files of goose are YAML, and the package comes with an extra.
        return import_module(".yaml_files", __package__)
    except ImportError as error:
        advice = "install trio-mcp with the extra for it: pip install 'trio-mcp[goose]'"
        raise CommandError(f"{path} is YAML: {advice}", Status.UNREACHABLE) from error


def unreadable(path: Path, why: str) -> CommandError:
    return CommandError(f"{path} cannot be read, and was left as it is: {why}", Status.UNREACHABLE)
