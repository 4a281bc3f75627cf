"""What the `pyproject.toml` of a server says, for the files that publish it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, cast

from ...regular_files import MAX_CONFIGURATION, read_regular
from ..errors import CommandError, Status

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
