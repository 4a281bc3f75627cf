"""Changing the file of a host: the change as a diff, a backup, and an atomic write."""

from __future__ import annotations

import difflib
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ...base.regular_files import MAX_CONFIGURATION, read_regular, replacing
from ...base.values import JsonValue
from ..errors import CommandError, Status
from .files import ConfigFile, file_text, yaml_files
from .json_text import JsonText


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
