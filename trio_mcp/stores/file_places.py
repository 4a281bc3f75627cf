"""Which file a path leads to, and whether it may grow.

A file that is deleted while it is open takes writes all the same, and they are lost with it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple


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


def has_reached_limit(path: Path) -> bool:
    """Return whether a file is as large as a file of this process may be; False where there is no such limit."""
    import resource  # noqa: PLC0415  POSIX only

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    try:
        return limit != resource.RLIM_INFINITY and os.stat(path).st_size >= limit
    except OSError:
        return False
