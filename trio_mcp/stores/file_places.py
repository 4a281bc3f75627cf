"""Which file a path leads to, whether it may grow, and whether the files of a process are still at their paths.

A file that is deleted while it is open takes writes all the same, and they are lost with it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ..storage import StoreError
from .nodes import Nodes


class FilePlace(NamedTuple):
    """What tells a file from another one under the same path."""

    device: int
    number: int


def place_of(path: Path) -> FilePlace | None:
    """Return which file is there now; None if none is, or none can be reached."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FilePlace(found.st_dev, found.st_ino)


class OwnFiles:
    """The files that have to be at their paths while this process writes.

    Args:
        path: of the database, which is open.
        nodes: the lock files, which say that this process lives.
    """

    def __init__(self, path: Path, nodes: Nodes) -> None:
        self._path = path
        self._place = place_of(path)
        self._nodes = nodes

    def check(self) -> None:
        """Raise `StoreError` unless they are there; a lock file that is not is made anew."""
        if place_of(self._path) != self._place:
            # What it takes would be lost.
            raise StoreError(
                f"the file {self._path} was deleted or replaced while the server used it: restart the server"
            )
        try:
            self._nodes.remake()
        except OSError as error:
            raise StoreError(f"the store {self._path} cannot say that this process lives: {error}") from None


def has_reached_limit(path: Path) -> bool:
    """Return whether a file is as large as a file of this process may be; False where there is no such limit."""
    import resource  # noqa: PLC0415  POSIX only

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    try:
        return limit != resource.RLIM_INFINITY and os.stat(path).st_size >= limit
    except OSError:
        return False
