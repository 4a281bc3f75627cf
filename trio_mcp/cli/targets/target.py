"""What a command connects to or serves: a file, a module, a URL, a command, or a server in the file of a host.

http://127.0.0.1:8000/mcp       a URL
app.py  app.py:name             a Python file, and a server or a factory in it
shop.server  shop.server:name   the same of a module
mcp.json:name                   a server in a file with `mcpServers`; without a name the only one
cursor:name                     a server in the files of a host
'python server.py --fast'       a command
npx                             the same without arguments, if there is such a program; else a module
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from ...base.named_tuples import NamedTuple
from ...base.values import shown_url
from ..command import CommandError, Status

if TYPE_CHECKING:
    from ...mcp_json import OAuthClient

SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
SCHEMES: Final = ("http", "https", "ws", "wss")
"""The URL schemes for which there is a transport."""
MODULE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
HOST_NAME: Final = re.compile(r"[a-z]+(-[a-z]+)*")
"""What the names of hosts look like; a module may look like that, too."""
ADDRESS: Final = re.compile(
    r"(?P<near>localhost|\d+(\.\d+){3}|\[[0-9a-f:]+\])(:\d+|:\d+/\S*|/\S*)|[a-z0-9.-]+(:\d+(/\S*)?|/mcp|/sse)",
    re.IGNORECASE,
)
"""A URL without its scheme; `near` is an address for which that is http."""
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
FORMS: Final = "a URL, a command in quotes, FILE.py[:name], MODULE[:name] or mcp.json:name"


class PythonTarget(NamedTuple):
    """A server that this program loads.

    Attributes:
        source: the file, or the name of the module.
        name: the server or the factory in it; None for the only one.
    """

    source: Path | str
    name: str | None = None

    @property
    def text(self) -> str:
        """The target as `trio-mcp run` takes it, from this folder."""
        return str(self.source) if self.name is None else f"{self.source}:{self.name}"


class CommandTarget(NamedTuple):
    """A command that starts a server on stdio; `env` and `cwd` come from the file of a host."""

    words: tuple[str, ...]
    env: Mapping[str, str] = NOTHING
    cwd: str | None = None


class UrlTarget(NamedTuple):
    """The URL of a server; the headers, and the client for logging in, come from the file of a host."""

    url: str
    headers: Mapping[str, str] = NOTHING
    oauth: OAuthClient | None = None


Target: TypeAlias = PythonTarget | CommandTarget | UrlTarget


def read_target(text: str) -> Target:
    """Return what a text names.

    Raises:
        CommandError: the URL has another scheme, the command cannot be split, or there is no such file, module or server.
    """
    if scheme := SCHEME.match(text):
        if scheme[1].lower() in SCHEMES:
            check_address(text)
            return UrlTarget(text)
        raise CommandError(f"{text!r} is not the URL of a server: those begin with {', '.join(SCHEMES)}, and ://")
    if server := named_server(text):
        return server
    return python_file(text) or command_or_module(text)


def target_texts(text: str) -> list[str]:
    """Return the texts of all servers that a text names: several for a file of several without a name."""
    if not text.endswith(".json"):
        return [text]
    found: list[str] = import_module(".host_targets", __package__).texts_of(text)
    return found


def check_address(url: str) -> None:
    """Raise `CommandError`, which shows no password, for a URL without a host or with an impossible port."""
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.port != 0:
            return
    except ValueError:
        pass
    raise CommandError(f"{shown_url(url)} is not a URL with a host and a port, such as http://127.0.0.1:8000/mcp")


def named_server(text: str) -> Target | None:
    """Return the server of `FILE.json`, `FILE.json:name` or `HOST:name`; None for other texts. Raises `CommandError`."""
    where, colon, name = text.rpartition(":")
    if text.endswith(".json"):
        where, name = text, ""
    if where.endswith(".json") or (colon and HOST_NAME.fullmatch(where)):
        # Loaded for these texts alone: `trio-mcp run FILE` must start as fast as `python FILE`.
        found: Target | None = import_module(".host_targets", __package__).find(where, name)
        return found
    return None


def python_file(text: str) -> PythonTarget | None:
    """Return the file of `FILE.py` or `FILE.py:name`; None for other texts, also for a command that begins with a file."""
    path, name = split_name(text)
    # With further words it is a command, which may be a .py file with a shebang.
    if not path.endswith(".py") or (len(text.split()) > 1 and not Path(path).exists()):
        return None
    check_file(Path(path))
    return PythonTarget(Path(path), name)


def split_name(text: str) -> tuple[str, str | None]:
    """Return what is before the last colon and after it. A colon belongs to the file's name if there is such a file."""
    where, colon, name = text.rpartition(":")
    if not colon or Path(text).exists():
        return text, None
    return where, name


def command_or_module(text: str) -> Target:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CommandError(f"{text!r} is not a command: {error}") from error
    if not words:
        raise CommandError("the target is empty")
    if len(words) == 1 and shutil.which(words[0]) is None:
        module = python_module(text)
        if module is None:
            check_file(Path(words[0]))
        return module or CommandTarget(tuple(words))
    return CommandTarget(tuple(words))


def python_module(text: str) -> PythonTarget | None:
    """Return the module of `MODULE` or `MODULE:name`; None for other texts, and if there is no such module."""
    where, _, name = text.partition(":")
    if not MODULE.fullmatch(where) or (name and not MODULE.fullmatch(name)):
        return None
    # Only the first part: to look for the others would run the code of their packages.
    if PathFinder.find_spec(where.partition(".")[0], ["", *sys.path]) is not None:
        return PythonTarget(where, name or None)
    return None


def check_file(path: Path) -> None:
    """Raise `CommandError`, which says what was looked for, unless there is a file of this name."""
    if path.is_file():
        return
    if path.is_dir():
        raise CommandError(f"{path} is a folder: name a Python file in it", Status.UNREACHABLE)
    if path.exists():
        raise CommandError(f"{path} is not a regular file", Status.UNREACHABLE)
    if address := ADDRESS.fullmatch(str(path)):
        scheme = "http" if address["near"] else "https"
        raise CommandError(f"there is no file {path}: do you mean {scheme}://{path}?", Status.UNREACHABLE)
    missing = f"there is no file {path}" if path.is_absolute() else f"there is no file {path} in {Path.cwd()}"
    meant = next(filter(Path.is_file, (Path(f"{path}.py"), Path(f"{path}".replace(".", "/") + ".py"))), None)
    if meant is not None:
        missing += f": do you mean {meant}?"
    elif path.suffix != ".py":
        missing += f", and no module or command of that name: give {FORMS}"
    raise CommandError(missing, Status.UNREACHABLE)


# The code of a server, for the commands that need it: `dev` reloads it, and `bundle` packs it.
#
# A server in the file of a host is a command; so may be the one in quotes. If it starts a Python file or module, that is
# meant:
# `trio-mcp dev cursor:shop` reloads what Cursor starts.

STARTS: Final = ("run", "dev", "serve")
"""Commands of `trio-mcp` that load the server of their target."""


def code_of(target: Target) -> PythonTarget | None:
    """Return the Python file or module of a target, or None if there is none: a URL, or another command.

    The variables and the folder that the file of a host has for a command become those of this process, which loads the code in
    its place.
    """
    if isinstance(target, PythonTarget):
        return target
    if not isinstance(target, CommandTarget) or (text := started_by(target.words)) is None:
        return None
    folder = Path(target.cwd or "")
    os.environ.update(target.env)
    # Python reads the variable only when it starts.
    sys.path[:0] = [*filter(None, target.env.get("PYTHONPATH", "").split(os.pathsep)), str(folder.absolute())]
    path, colon, _ = text.partition(".py")
    if colon and (folder / f"{path}.py").is_file():
        return python_file(str(folder / text))
    return python_module(text)


def started_by(words: Sequence[str]) -> str | None:
    """Return the target of a `trio-mcp run`, or the file of a `python FILE`; None for another command."""
    program = Path(words[0]).name
    rest = [word for word in words[1:] if word != "-u"]
    if program.startswith("python"):
        if rest[:2] != ["-m", "trio_mcp"]:
            return rest[0] if rest and rest[0].endswith(".py") else None
        rest = rest[2:]
    elif program != "trio-mcp":
        return None
    # The target is the first or the last word: options may be on one side of it.
    ends = [rest[1], rest[-1]] if len(rest) > 1 and rest[0] in STARTS else []
    return next((word for word in ends if not word.startswith("-")), None)
