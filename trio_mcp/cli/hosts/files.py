"""Reading the file of a host without losing anything that has to be written back."""

from __future__ import annotations

import difflib
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from types import ModuleType

from ...base.regular_files import MAX_CONFIGURATION, read_regular, replacing
from ...base.values import JsonValue
from ...errors import ConfigurationError
from ...mcp_json import (
    FoundServer,
    Variables,
    find_comments,
    parse_jsonc,
    read_servers,
    without_comments,
    without_trailing_commas,
)
from ..command import CommandError, Status
from .json_text import JsonText
from .table import Host, Scope


@dataclass(frozen=True)
class ConfigFile:
    """The file of a host as it was read.

    Attributes:
        path: the file itself, which the path of the host may be a link to.
        text: empty if there is no such file.
        document: what it says; of YAML the representation that keeps comments.
        member: the name of the member with the servers.
        servers: its value.
        is_yaml: it is not JSON, as the path of the host says: what that links to may have any name.
    """

    path: Path
    text: str
    document: dict[str, JsonValue]
    member: str
    servers: dict[str, JsonValue]
    is_yaml: bool = False


def read_file(path: Path, host: Host) -> ConfigFile:
    """Return what a file says; an empty document if there is no such file.

    Raises:
        CommandError: it cannot be read or parsed, has something else where servers should be, or is a link out of the project.
    """
    itself = file_itself(path, host)
    shown = str(path) if itself == path else f"{path} (a link to {itself})"
    text = file_text(itself, shown)
    document: object = {}
    if text.strip():
        document = yaml_document(itself, text, shown) if is_yaml(path) else json_document(text, shown)
    if not isinstance(document, dict):
        raise unreadable(shown, "it is not an object")
    member = next((each for each in host.members if each in document), host.members[0])
    servers = document.get(member)
    if servers is None:
        servers = document[member] = {}
    if not isinstance(servers, dict):
        raise unreadable(shown, f"{member} is not an object")
    return ConfigFile(itself, text, document, member, servers, is_yaml(path))


def read_for_change(path: Path, host: Host) -> ConfigFile:
    """Return what a file says that will be changed; see `read_file`.

    Raises:
        CommandError: also if it has comments or trailing commas that its host does not read.
    """
    file = read_file(path, host)
    if not file.is_yaml and (found := unread(file.text, host)) is not None:
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
    if not path.exists():
        raise CommandError(f"there is no file {path}", Status.UNREACHABLE)
    file = read_file(path, host)
    # What is relative in the file for all folders is so to the current one.
    is_project = scope_of(path, host) != "user"
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


def scope_of(path: Path, host: Host) -> Scope | None:
    """Return whether this is the file of a host for all folders or for the current one; None for another file."""
    scopes = {each.scope for each in host.files() if each.path == path}
    # It is both if the current folder is the home of the user.
    return "user" if "user" in scopes else next(iter(scopes), None)


def file_itself(path: Path, host: Host) -> Path:
    """Return the file that a link leads to; a path without links stays as it is.

    A user may keep the file of a host elsewhere. But a link in a project may have come with it, and could lead to any file of the
    user.

    Raises:
        CommandError: it is in the current project, and leads out of its folder; or it leads nowhere.
    """
    try:
        itself = path.resolve()
        folder = Path.cwd().resolve()
    except (OSError, RuntimeError):
        raise unreadable(path, "its links lead in a circle") from None
    if scope_of(path, host) == "project" and not itself.is_relative_to(folder):
        raise unreadable(
            path,
            f"it leads to {itself}, out of the folder of the project. Name a server in it as {itself}:NAME; to install "
            f"and uninstall, give --file {itself}",
        )
    return path if itself == folder / path else itself


def file_text(path: Path, shown: str) -> str:
    """Return what is in a file, or an empty text if there is none. Raises `CommandError`, which names the file as it is shown."""
    try:
        # Line ends stay as they are: the file is written again.
        return read_regular(path, MAX_CONFIGURATION).decode("utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise unreadable(shown, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise unreadable(shown, "it is not UTF-8") from error


def json_document(text: str, shown: str) -> object:
    try:
        return parse_jsonc(text.removeprefix("\ufeff"), shown)
    except ConfigurationError as error:
        raise unreadable(shown, str(error).removeprefix(f"{shown}: ")) from error


def is_yaml(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml")


def yaml_document(path: Path, text: str, shown: str) -> object:
    parse = yaml_files(path).parse
    try:
        return parse(text)
    except ValueError as error:
        raise unreadable(shown, str(error)) from error


def yaml_files(path: Path) -> ModuleType:
    """Return the module that reads and writes YAML. Raises `CommandError` if the package that it needs is not installed."""
    try:
        # Not at the top: only the files of goose are YAML, and the package comes with an extra.
        return import_module(".yaml_files", __package__)
    except ImportError as error:
        advice = "install trio-mcp with the extra for it: pip install 'trio-mcp[goose]'"
        raise CommandError(f"{path} is YAML: {advice}", Status.UNREACHABLE) from error


def unreadable(path: Path | str, why: str) -> CommandError:
    return CommandError(f"{path} cannot be read, and was left as it is: {why}", Status.UNREACHABLE)


# Changing the file of a host: the change as a diff, a backup, and an atomic write.


@dataclass(frozen=True)
class Change:
    """A file before and after; `path` is the file itself, and no link."""

    path: Path
    before: str
    after: str

    def diff(self) -> Sequence[str]:
        """Return what changes, as `diff -u` writes it."""
        old, new = self.before.splitlines(), self.after.splitlines()
        return [*difflib.unified_diff(old, new, f"{self.path}", f"{self.path} (new)", lineterm="")]

    def write(self) -> Path | None:
        """Write the file, and return the copy that was made of the old one; None if there was none.

        Raises:
            CommandError: it cannot be written, or another program has changed it since it was read. It is as it was.
        """
        path = self.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if file_text(path, str(path)) != self.before:
                raise CommandError(f"{path} was changed meanwhile: try again", Status.UNREACHABLE)
            backup = back_up(path) if path.exists() else None
            with replacing(path) as file:
                file.write(self.after.encode())
        except OSError as error:
            raise CommandError(f"{path} cannot be written: {error.strerror or error}", Status.UNREACHABLE) from error
        return backup


def with_server(file: ConfigFile, name: str, member: dict[str, JsonValue]) -> Change:
    """Return the change that adds a server, or replaces the one of that name."""
    if file.is_yaml:
        file.servers[name] = member
        return Change(file.path, file.text, yaml_text(file))
    text = file.text if file.text.strip() else "{}\n"
    json_text = JsonText(text)
    servers = json_text.find_value(json_text.root, file.member)
    if servers is None or text[servers] != "{":
        after = json_text.with_member(json_text.root, file.member, {name: member})
    else:
        after = json_text.with_member(servers, name, member)
    return Change(file.path, file.text, after)


def without_server(file: ConfigFile, name: str) -> Change:
    """Return the change that removes a server. Raises `KeyError`."""
    del file.servers[name]
    if file.is_yaml:
        return Change(file.path, file.text, yaml_text(file))
    json_text = JsonText(file.text)
    servers = json_text.find_value(json_text.root, file.member)
    assert servers is not None
    return Change(file.path, file.text, json_text.without_member(servers, name))


def yaml_text(file: ConfigFile) -> str:
    return str(yaml_files(file.path).written(file.document))


def back_up(path: Path) -> Path:
    """Copy a file, with its permissions, to an unused name beside it, and return the path of the copy."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    names = (f"{path.name}.{stamp}{f'-{number}' if number else ''}.bak" for number in count())
    backup = next(each for name in names if not (each := path.with_name(name)).exists())
    with replacing(backup, 0o600) as file:
        file.write(read_regular(path, MAX_CONFIGURATION))
    shutil.copystat(path, backup)
    return backup
