"""Which files are of the project of a server, and so may have the mistake that an error is about."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

INSTALLED: Final = ("site-packages", "dist-packages")


class OwnFiles:
    """The files in some folders, without those of Python, of an environment and of installed packages.

    Args:
        roots: the folders.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(root.resolve() for root in roots)
        prefixes = {Path(sys.prefix).resolve(), Path(os.__file__).resolve().parent}
        # Not a prefix that has the project in it, as /usr has /usr/src.
        self._foreign = [each for each in prefixes if not any(root.is_relative_to(each) for root in self._roots)]

    def owns(self, path: Path) -> bool:
        """Return whether this is one of the files."""
        path = path.resolve()
        for root in self._roots:
            if path.is_relative_to(root) and not set(INSTALLED) & set(path.relative_to(root).parts):
                return not any(path.is_relative_to(each) for each in self._foreign)
        return False

    def last_frame(self, error: BaseException) -> traceback.FrameSummary | None:
        """Return the last frame in one of the files of where an error was raised; None if it was raised elsewhere."""
        frames = traceback.extract_tb(error.__traceback__)
        found = [
            frame
            for frame in frames
            if not frame.filename.startswith("<") and not is_ours(frame.filename) and self.owns(Path(frame.filename))
        ]
        return found[-1] if found else None


def is_ours(filename: str) -> bool:
    """Return whether a file is one of this package, which is in the folder of its examples in a checkout."""
    return filename.startswith(OUR_FOLDER)


OUR_FOLDER: Final = f"{Path(__file__).parents[2]}{os.sep}"


def project_roots(source: Path | str) -> list[Path]:
    """Return the folders whose modules belong to the project of a file or module.

    That is the folder with its `pyproject.toml`. Without one it is the folder of the file, or the one round its package.
    """
    folder = source.resolve().parent if isinstance(source, Path) else folder_of(source)
    if set(INSTALLED) & set(folder.parts):
        # A module that is installed: its package alone, which its user edits in place.
        return [folder]
    marked = next((each for each in (folder, *folder.parents) if (each / "pyproject.toml").is_file()), None)
    if marked is not None:
        return [marked]
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return [folder]


def folder_of(module: str) -> Path:
    """Return the folder of the package that a module is in, or of the module itself."""
    top = module.partition(".")[0]
    spec = PathFinder.find_spec(top, [str(Path.cwd()), *sys.path])
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin).resolve().parent if spec is not None and spec.origin else Path.cwd()
