"""What only POSIX systems have: the text of the errors of what needs it, and the locks of files."""

from __future__ import annotations

import sys
from types import ModuleType

# What needs a POSIX system raises at its entry, under `if sys.platform == "win32"`; a function that is only reached behind such
# an entry raises `NotImplementedError` there. `make platforms` checks the types for each system: what one of them lacks is an
# error elsewhere.


def needs_posix(what: str) -> str:
    """Return the text of the error of what only POSIX systems can do."""
    return f"{what} needs a POSIX system, such as Linux: on Windows, run it in WSL"


def file_locks() -> ModuleType:
    """Return the module `fcntl`, with the locks of open files (flock(2)).

    Raises:
        OSError: this system is Windows, which has none.
    """
    if sys.platform == "win32":
        raise OSError(needs_posix("the lock of a file"))
    import fcntl  # noqa: PLC0415  POSIX only

    return fcntl
