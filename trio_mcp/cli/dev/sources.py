"""The source files of a project: which versions of them a process has read, and which have changed since."""

# Each version is noted when it is read. So a file that is saved while it is imported, or right after, is found to have changed,
# however many notifications of the system were lost or came together. Bytecode is neither read nor written: its file names the
# second in which the source was saved, and two versions of one second with the same length would be taken for one.

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Final

from ...base.named_tuples import NamedTuple
from ...base.regular_files import read_regular

MAX_SOURCE: Final = 64 * 1024 * 1024
"""Bytes of a file that are compared; no source has as many."""
IMPORTABLE: Final = ("", ".py")
"""How the name of a folder or a file ends that may be a package or a module."""


class Stamp(NamedTuple):
    """What the system says of a version of a file."""

    modified: int
    size: int
    inode: int


class Source(NamedTuple):
    """The version of a file that a module was made of."""

    stamp: Stamp | None
    digest: str | None


def stamp_of(path: Path) -> Stamp | None:
    """Return what the system says of a file; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def digest_of(path: Path) -> str | None:
    """Return a digest of what a file holds; None if it cannot be read."""
    try:
        return hashlib.sha256(read_regular(path, MAX_SOURCE)).hexdigest()
    except OSError:
        return None


def source_of(path: Path) -> Source:
    """Return the version of a file that there is now."""
    # The stamp first: a version that is saved meanwhile differs from it.
    stamp = stamp_of(path)
    return Source(stamp, digest_of(path))


def note_sources(owns: Callable[[Path], bool], note: Callable[[Path, Source], None]) -> None:
    """Report each source that this process reads for a module, from now on; these modules use no bytecode.

    Args:
        owns: returns whether a file is one of the project.
        note: called in the thread that imports.
    """
    path_stats = SourceFileLoader.path_stats

    def noted(loader: SourceFileLoader, path: str) -> Mapping[str, float]:
        named = Path(path).absolute()
        if not owns(named):
            return path_stats(loader, path)
        source = source_of(named)
        # A link may be made to lead to another file, while this one stays as it is.
        for each in (named.resolve(), *([named] if named.is_symlink() else [])):
            note(each, source)
        # `importlib` then reads the source, and neither reads nor writes bytecode.
        raise OSError("bytecode is not used")

    SourceFileLoader.path_stats = noted  # type: ignore[method-assign, assignment]


class SourceFiles:
    """The versions of the files that the newest attempt to load a server has read.

    Attributes:
        files: the version of each file that is in use, or that was read in the last attempt.
    """

    def __init__(self) -> None:
        self.files: dict[Path, Source] = {}
        self._read: set[Path] = set()

    def begin(self) -> None:
        """Begin an attempt: of what it does not read, it is known that it was so when the attempt began."""
        self._read.clear()
        for path in self.files:
            self.files[path] = source_of(path)

    def note(self, path: Path, source: Source) -> None:
        """Note a version that was read."""
        self._read.add(path)
        self.files[path] = source

    def settle(self) -> None:
        """Take a file that was written again with the same text, while it was imported, for the one that was read."""
        # A module that writes another one, each time it is imported, would be loaded again and again.
        for path, source in self.files.items():
            stamp = stamp_of(path)
            if stamp not in (None, source.stamp) and digest_of(path) == source.digest:
                self.files[path] = Source(stamp, source.digest)

    def forget_unread(self) -> None:
        """Forget the files that the last attempt has not read, which has succeeded: the code is not made of them any more."""
        for path in [*self.files]:
            if path not in self._read:
                del self.files[path]

    def changed(self, touched: Iterable[Path] = ()) -> list[Path]:
        """Return the files that are not as they were read.

        Args:
            touched: files of which the system said that they have changed, whose content is compared, too: of two versions that
                are saved within the resolution of the clock the system says the same.
        """
        named = set(touched)
        return [
            path
            for path, source in self.files.items()
            if stamp_of(path) != source.stamp or (path in named and digest_of(path) != source.digest)
        ]

    def folders(self) -> set[Path]:
        """Return the folders that the files are in."""
        return {path.parent for path in self.files}


def importable(folders: Collection[Path]) -> dict[Path, Stamp | None]:
    """Return what the system says of each package and module in some folders."""
    entries = [entry for folder in folders if folder.is_dir() for entry in folder.iterdir()]
    return {entry: stamp_of(entry) for entry in entries if entry.suffix in IMPORTABLE}
