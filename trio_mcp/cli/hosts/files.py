"""Reading the file of a host without losing anything that has to be written back."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from ...errors import ConfigurationError
from ...json_value import JsonValue
from ...mcp_json import FoundServer, Variables, parse_jsonc, read_servers
from ..errors import CommandError, Status
from .table import Host

MAX_BYTES: Final = 50_000_000
"""Bytes of the largest file that is read; Claude Code keeps its history in the same one."""


@dataclass(frozen=True)
class ConfigFile:
    """The file of a host as it was read.

    Attributes:
        text: empty if there is no such file.
        document: what it says; of YAML the representation that keeps comments.
        member: the name of the member with the servers.
        servers: its value.
    """

    path: Path
    text: str
    document: dict[str, JsonValue]
    member: str
    servers: dict[str, JsonValue]


def read_file(path: Path, host: Host, *, with_comments: bool = False) -> ConfigFile:
    """Return what a file says; an empty document if there is no such file.

    Args:
        with_comments: the file is only read. To write one with comments would take them out: no library that edits such files
            and keeps them is both old enough to be relied on and still maintained.

    Raises:
        CommandError: it cannot be read or parsed, or has something else where servers should be.
    """
    text = file_text(path)
    document: object = {}
    if text.strip():
        if is_yaml(path):
            document = yaml_document(path, text)
        else:
            document = json_with_comments(path, text) if with_comments else json_document(path, text)
    if not isinstance(document, dict):
        raise unreadable(path, "it is not an object")
    member = next((each for each in host.members if each in document), host.members[0])
    servers = document.get(member)
    if servers is None:
        servers = document[member] = {}
    if not isinstance(servers, dict):
        raise unreadable(path, f"{member} is not an object")
    return ConfigFile(path, text, document, member, servers)


def read_entries(path: Path, host: Host, *, expand: bool = False) -> list[FoundServer]:
    """Return the servers in a file, which may have comments.

    Args:
        expand: replace variables by their values, and read files with variables.

    Raises:
        CommandError: there is no such file, or it cannot be parsed.
    """
    if not path.is_file():
        raise CommandError(f"there is no file {path}", Status.UNREACHABLE)
    file = read_file(path, host, with_comments=True)
    # What is relative in the file for all folders is so to the current one.
    is_project = not any(each.path == path and each.scope == "user" for each in host.files())
    folder = path.absolute().parent if is_project else Path.cwd()
    variables = Variables({}, os.environ, folder, bare=host.style == "gemini") if expand else None
    members = {**file.servers, **folder_servers(file, host)}
    return [*read_servers(members, str(path), variables, [])]


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


def json_with_comments(path: Path, text: str) -> object:
    try:
        return parse_jsonc(text.removeprefix("\ufeff"), str(path))
    except ConfigurationError as error:
        raise CommandError(str(error), Status.UNREACHABLE) from error


def without_repeats(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) < len(members):
        # One of the two would be lost when the file is written.
        raise ValueError("a member occurs twice in an object")
    return found


def is_yaml(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml")


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
