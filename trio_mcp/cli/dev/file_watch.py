"""Watching folders for changes of their files."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path
from typing import Final

import trio
from watchfiles import awatch

from ..targets.loading import INSTALLED
from .project_modules import Stamp, stamp_of

# Milliseconds. A save is often several changes (an editor writes a new file and renames it); they are noticed together.
QUIET: Final = 50
LONGEST: Final = 400
CHECK: Final = 1000
"""How often files are compared although nothing was noticed: some file systems notify of nothing, such as those of a network."""

logger = logging.getLogger("trio_mcp.cli")


async def watch(folders: Callable[[], Collection[Path]], on_change: Callable[[Collection[Path]], None]) -> None:
    """Call `on_change` with the files that have changed in these folders, and once a second with none; until a cancel.

    Args:
        folders: returns the folders, which may be others after each call of `on_change`; what is below them does not count.
    """
    # It logs each change that it notices.
    logging.getLogger("watchfiles").setLevel(logging.WARNING)
    polls = False
    while True:  # noqa: ASYNC913  it waits on each way through
        watched = existing(folders())
        if not watched:
            await trio.sleep(CHECK / 1000)
            on_change(())
            continue
        try:
            await watch_these(watched, folders, on_change, polls=polls)
        # Of the system: a folder has gone, or it watches as many files as it can.
        except (OSError, RuntimeError) as error:
            if polls:
                raise
            logger.warning("the system does not notify of changes (%s): files are compared three times a second", error)
            polls = True


async def watch_these(
    watched: Sequence[Path],
    folders: Callable[[], Collection[Path]],
    on_change: Callable[[Collection[Path]], None],
    *,
    polls: bool,
) -> None:
    """Watch these folders until others are to be watched."""
    changes = awatch(
        *watched,
        watch_filter=None,
        debounce=LONGEST,
        step=QUIET,
        rust_timeout=CHECK,
        yield_on_timeout=True,
        force_polling=polls or None,
        recursive=False,
        ignore_permission_denied=True,
    )
    async with aclosing(changes):
        async for changed in changes:
            on_change({Path(path) for _, path in changed})
            if existing(folders()) != watched:
                return


def existing(folders: Collection[Path]) -> list[Path]:
    return sorted(folder for folder in folders if folder.is_dir())


# What a reload cannot apply: C extensions and installed packages that have changed since they were loaded, by name.

DIST_INFO: Final = ".dist-info"


class Restarts:
    """Records what was loaded, and reports what has changed of it since.

    Args:
        extensions: returns the C extensions of the project that are loaded, by name.
    """

    def __init__(self, extensions: Callable[[], Mapping[str, Path]]) -> None:
        self._extensions = extensions
        self._stamps: dict[str, tuple[Path, Stamp | None]] = {}
        self.site_folders = [*dict.fromkeys(Path(each) for each in sys.path if Path(each).name in INSTALLED)]
        self._packages = installed(self.site_folders)

    def note_loaded(self) -> None:
        """Note the C extensions that have been loaded since the last time."""
        for name, path in self._extensions().items():
            self._stamps.setdefault(name, (path, stamp_of(path)))

    def folders(self) -> set[Path]:
        """Return the folders in which changes matter."""
        return {*self.site_folders, *(path.parent for path, _ in self._stamps.values())}

    def changed(self) -> list[str]:
        """Return what has changed, in words that name it."""
        extensions = [
            f"the C extension {name} ({path.name})"
            for name, (path, stamp) in self._stamps.items()
            if stamp_of(path) != stamp
        ]
        return extensions + self._changed_packages()

    def _changed_packages(self) -> list[str]:
        now = installed(self.site_folders)
        found = []
        for name, (place, stamp) in self._packages.items():
            here = now.get(name)
            if here == (place, stamp) or not is_loaded(place if here is None else here[0]):
                continue
            after = "removed" if here is None else version_of(here[0])
            found.append(f"the package {name} ({version_of(place)} -> {after})")
        return found


def installed(folders: list[Path]) -> dict[str, tuple[Path, Stamp | None]]:
    """Return the installed packages by name: the folder with the metadata of each, and its stamp."""
    found: dict[str, tuple[Path, Stamp | None]] = {}
    for folder in folders:
        try:
            entries = [each for each in os.scandir(folder) if each.name.endswith(DIST_INFO)]
        except OSError:
            continue
        for entry in entries:
            # The list of its files, which every installation writes again.
            place = Path(entry.path)
            found.setdefault(entry.name.partition("-")[0], (place, stamp_of(place / "RECORD")))
    return found


def version_of(place: Path) -> str:
    """Return the version of a package by the name of the folder that describes it."""
    return place.name.removesuffix(DIST_INFO).partition("-")[2]


def is_loaded(place: Path) -> bool:
    """Return whether a module of an installed package is loaded; its description may be gone by now."""
    name = place.name.partition("-")[0]
    return any(each in sys.modules for each in (name, name.lower(), *modules_of(PathDistribution(place))))


def modules_of(package: Distribution) -> set[str]:
    """Return the names of the modules and packages that an installed package has."""
    files = package.files or ()
    tops = {each.parts[0] for each in files if each.suffix in (".py", ".so", ".pyd")}
    return {top.partition(".")[0] for top in tops if not top.endswith(DIST_INFO)}
