"""`${NAME}` in the files of hosts, and the files with variables that they name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..base.regular_files import MAX_CONFIGURATION, read_regular
from ..errors import ConfigurationError

REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")
BARE_REFERENCE: Final = re.compile(r"\$(?:\{([^{}]*)\}|([A-Za-z_]\w*))")
BARE: Final = re.compile(r"\$\w+")
ASSIGNMENT: Final = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*)")
COMMENT: Final = re.compile(r"\s+#.*")

EDITOR_FOLDERS: Final = frozenset({".vscode", ".cursor", ".gemini", ".kiro"})
"""Folders of a project in which an editor keeps its files."""


@dataclass(frozen=True, slots=True)
class Variables:
    """What `${NAME}` stands for.

    Args:
        given: values by what is between the braces, such as "TOKEN", "env:TOKEN" or "input:token"; looked up first.
        environment: the variables of this process.
        folder: of the file.
        bare: `$NAME` is a reference, too, as in the files of Gemini CLI.
    """

    given: Mapping[str, str]
    environment: Mapping[str, str]
    folder: Path
    bare: bool = False

    def expand(self, text: str, where: str) -> str:
        """Return a text with the values of its references; `${NAME:-default}` has one for a variable that is unset or empty.

        Args:
            where: names the text in errors, which do not show it: it may be a secret.

        Raises:
            ConfigurationError: a variable has no value; the message names it.
        """
        pattern = BARE_REFERENCE if self.bare else REFERENCE
        return pattern.sub(lambda match: self._value(next(filter(None, match.groups()), ""), where), text)

    def _value(self, reference: str, where: str) -> str:
        name, has_default, default = reference.partition(":-")
        value = self._find(name)
        if value or (value is not None and not has_default):
            return value
        if has_default:
            return default
        if name.startswith("input:"):
            raise ConfigurationError(
                f"{where}: a host asks its user for ${{{name}}}; pass variables={{{name!r}: ...}} instead"
            )
        raise ConfigurationError(f"{where}: the variable {name!r} is not set")

    def _find(self, name: str) -> str | None:
        if name in self.given:
            return self.given[name]
        match name:
            case "userHome":
                return str(Path.home())
            case "workspaceFolder":
                return str(self._workspace)
            case "workspaceFolderBasename":
                return self._workspace.name
            case "pathSeparator" | "/":
                return os.sep
            case _:
                plain = name.removeprefix("env:")
                return self.given.get(plain, self.environment.get(plain))

    @property
    def _workspace(self) -> Path:
        return self.folder.parent if self.folder.name in EDITOR_FOLDERS else self.folder


def read_env_file(path: Path, where: str) -> dict[str, str]:
    """Return the variables of a file with lines such as `TOKEN=secret`; `#` begins a comment, and quotes are removed.

    Raises:
        ConfigurationError: it cannot be read, or a line is not an assignment; the message has the number of the line, and none of
            its text.
    """
    try:
        lines = read_regular(path, MAX_CONFIGURATION).decode("utf-8-sig").splitlines()
    # `ValueError`: it is not UTF-8, or no file has such a name.
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{where}: {str(path)!r} cannot be read: {error}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        assignment = ASSIGNMENT.fullmatch(stripped)
        if assignment is None:
            raise ConfigurationError(f"{where}: {path}, line {number}: this is no assignment, such as NAME=value")
        name, value = assignment.groups()
        found[name] = _unquoted(value)
    return found


def _unquoted(value: str) -> str:
    for quote in "\"'":
        if value.startswith(quote) and (end := value.find(quote, 1)) > 0:
            return value[1:end]
    return COMMENT.sub("", f" {value}").strip()
