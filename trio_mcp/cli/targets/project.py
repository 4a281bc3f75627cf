"""What the `pyproject.toml` of a server says, for the files that publish it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, cast

from ...base.regular_files import MAX_CONFIGURATION, read_regular
from ...protocol.sealing.request_state import KeyRing
from ..command import CommandError, Status

GITHUB: Final = re.compile(r"https://github\.com/([^/]+)/([^/#?]+?)(\.git)?/?")
REPOSITORY: Final = ("repository", "source", "source code", "github")
HOMEPAGE: Final = ("homepage", "home", "home page", "documentation")


@dataclass(frozen=True)
class Project:
    """A project by its `pyproject.toml`; empty if there is none.

    Attributes:
        urls: its URLs, by their labels in lower case.
    """

    folder: Path
    name: str | None = None
    version: str | None = None
    description: str | None = None
    author: str | None = None
    license: str | None = None
    requires_python: str | None = None
    keywords: Sequence[str] = ()
    dependencies: Sequence[str] = ()
    scripts: Sequence[str] = ()
    urls: Mapping[str, str] = field(default_factory=dict)
    readme: str = "README.md"

    @property
    def exists(self) -> bool:
        """Whether there is such a file."""
        return has_project(self.folder)

    @property
    def repository(self) -> str | None:
        """The URL of its source."""
        found = [self.urls[name] for name in REPOSITORY if name in self.urls]
        return next(iter(found), None) or next(filter(GITHUB.fullmatch, self.urls.values()), None)

    @property
    def homepage(self) -> str | None:
        """The URL to read about it."""
        return next((self.urls[name] for name in HOMEPAGE if name in self.urls), None)


def project_of(path: Path) -> Project:
    """Return the project that a file or folder is in: the nearest folder with a `pyproject.toml`, or else its own."""
    folder = path.resolve() if path.is_dir() else path.resolve().parent
    found = next((each for each in (folder, *folder.parents) if has_project(each)), None)
    return Project(folder) if found is None else read_project(found)


def has_project(folder: Path) -> bool:
    """Return whether a folder has a `pyproject.toml`, readable or not."""
    path = folder / "pyproject.toml"
    return os.path.lexists(path) and not path.is_dir()


def read_project(folder: Path) -> Project:
    """Return what the file in a folder says. Raises `CommandError` if it cannot be read."""
    path = folder / "pyproject.toml"
    try:
        document = tomllib.loads(read_regular(path, MAX_CONFIGURATION).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise CommandError(f"{path} cannot be read: {error}", Status.UNREACHABLE) from error
    table = mapping(document.get("project"))
    name = text(table.get("name"))
    authors = [mapping(each) for each in listed(table.get("authors"))]
    licence = table.get("license")
    return Project(
        folder,
        name,
        text(table.get("version")) or installed_version(name),
        text(table.get("description")),
        next((found for each in authors if (found := text(each.get("name")) or text(each.get("email")))), None),
        text(licence) or text(mapping(licence).get("text")),
        text(table.get("requires-python")),
        [*filter(None, map(text, listed(table.get("keywords"))))],
        [*filter(None, map(text, listed(table.get("dependencies"))))],
        [*mapping(table.get("scripts"))],
        {label.lower(): url for label, url in mapping(table.get("urls")).items() if isinstance(url, str)},
        text(table.get("readme")) or text(mapping(table.get("readme")).get("file")) or "README.md",
    )


def installed_version(name: str | None) -> str | None:
    """Return the version of the installed project, for one whose file computes it."""
    try:
        return version(name) if name else None
    except PackageNotFoundError:
        return None


def text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def needed(value: str | None, option: str) -> str:
    """Return what a project or an option says. Raises `CommandError` if neither does."""
    if not value:
        raise CommandError(f"pyproject.toml does not say it: give {option}")
    return value


# Files beside the code of a server that are published only if its author includes them: keys, secrets and databases.

KEYS: Final = (
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "*.ppk",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
)
DATABASES: Final = ("*.db", "*.db3", "*.sqlite", "*.sqlite3", "*-wal", "*-shm", "*-journal", "*.mdb", "*.duckdb")
SECRETS: Final = (
    "*.env",
    "credentials",
    "credentials.json",
    "credentials.toml",
    "client_secret*.json",
    "service[-_]account*.json",
    "secret.toml",
    "secrets.json",
    "secrets.toml",
    "secrets.y*ml",
    "*.tfstate",
    "*.tfstate.backup",
    "*.tfvars",
)
VARIABLES: Final = re.compile(r"(.*\.)?env\.(?!(?:py|pyi|[cm]?[jt]sx?|md|rst|html|example|sample|template|dist)$)[^.]+")
"""The name of a file of variables with a word after it, such as `env.production`, and not that of code or of an example."""
SQLITE: Final = b"SQLite format 3\0"
PRIVATE_KEY: Final = re.compile(
    rb"(?:^[ \t]*-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[ \t]*\r?$)"
    rb"|(?:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:\\{1,8}[nr]|\s){1,16}[A-Za-z0-9+/]{4})"
    rb"|(?:\APuTTY-User-Key-File-)",
    re.MULTILINE,
)
"""What begins a key in PEM, of each kind: on a separate line, or followed by the key, as in a string of JSON. Code that only
names it has neither."""
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
HEAD: Final = 4096
"""Bytes of a file that may be a list of keys for `TRIO_MCP_KEYS`, which has fewer."""


def kind_of(path: Path, limit: int) -> str | None:
    """Return what a file is that must not be published by accident, by its name or its content; None for any other.

    Args:
        limit: bytes that it may have.

    Raises:
        OSError: it cannot be read, is no regular file, or is too large.
    """
    name = path.name.lower()
    content = read_regular(path, limit)
    if any(fnmatch(name, each) for each in DATABASES) or content.startswith(SQLITE):
        return "a database"
    if any(fnmatch(name, each) for each in SECRETS) or VARIABLES.fullmatch(name):
        return "secrets"
    if any(fnmatch(name, each) for each in KEYS) or is_private_key(content) or is_key_ring(content[:HEAD]):
        return "a key"
    return None


def is_private_key(content: bytes) -> bool:
    """Return whether a private key is in a text, in UTF-8 or UTF-16."""
    # Without the zeros, UTF-16 is the same text.
    text = content.replace(b"\0", b"") if content.startswith((b"\xff\xfe", b"\xfe\xff")) else content
    return PRIVATE_KEY.search(text.removeprefix(BYTE_ORDER_MARK)) is not None


def is_key_ring(content: bytes) -> bool:
    """Return whether these are keys as `TRIO_MCP_KEYS` has them."""
    try:
        KeyRing.parse(content.decode("ascii"))
    except ValueError:
        return False
    return True
