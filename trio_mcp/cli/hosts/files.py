"""Reading the file of a host without losing anything that has to be written back."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from ...errors import ConfigurationError
from ...json_value import JsonValue
from ...mcp_json import (
    FoundServer,
    Variables,
    find_comments,
    parse_jsonc,
    read_servers,
    without_comments,
    without_trailing_commas,
)
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


def read_file(path: Path, host: Host) -> ConfigFile:
    """Return what a file says; an empty document if there is no such file.

    Raises:
        CommandError: it cannot be read or parsed, or has something else where servers should be.
    """
    text = file_text(path)
    document: object = {}
    if text.strip():
        document = yaml_document(path, text) if is_yaml(path) else json_document(path, text)
    if not isinstance(document, dict):
        raise unreadable(path, "it is not an object")
    member = next((each for each in host.members if each in document), host.members[0])
    servers = document.get(member)
    if servers is None:
        servers = document[member] = {}
    if not isinstance(servers, dict):
        raise unreadable(path, f"{member} is not an object")
    return ConfigFile(path, text, document, member, servers)


def read_for_change(path: Path, host: Host) -> ConfigFile:
    """Return what a file says that will be changed; see `read_file`.

    Raises:
        CommandError: also if it has comments or trailing commas that its host does not read.
    """
    file = read_file(path, host)
    if not is_yaml(path) and (found := unread(file.text, host)) is not None:
        what, at = found
        line = file.text.count("\n", 0, at) + 1
        why = f"line {line} has {what}, which {host.title} does not read or does not document"
        raise unreadable(path, f"{why}; take that out first")
    return file


def unread(text: str, host: Host) -> tuple[str, int] | None:
    """Return what a host does not read in a text that can be parsed, and where that is; None if it reads all of it."""
    if host.syntax == "json":
        for start, _ in find_comments(text):
            return "a comment", start
    if host.syntax != "jsonc":
        bare = without_comments(text)
        plain = without_trailing_commas(bare)
        if bare != plain:
            return "a trailing comma", next(
                at for at, pair in enumerate(zip(bare, plain, strict=True)) if len({*pair}) > 1
            )
    return None


def read_entries(path: Path, host: Host, *, expand: bool = False) -> list[FoundServer]:
    """Return the servers in a file, which may have comments.

    Args:
        expand: replace variables by their values, and read files with variables.

    Raises:
        CommandError: there is no such file, or it cannot be parsed.
    """
    if not path.is_file():
        raise CommandError(f"there is no file {path}", Status.UNREACHABLE)
    file = read_file(path, host)
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
        return parse_jsonc(text.removeprefix("\ufeff"), str(path))
    except ConfigurationError as error:
        raise unreadable(path, str(error).removeprefix(f"{path}: ")) from error


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
