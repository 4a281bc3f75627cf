"""Which file a path leads to: a file that is deleted while it is open takes writes all the same, and they are lost with it."""

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
