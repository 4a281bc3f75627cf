"""Which processes live: each holds the lock of a file (flock) under its name, which its end releases, however it comes."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from types import ModuleType
from typing import Final

from ..errors import ConfigurationError

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Nodes:
    """The processes that use one store on this machine.

    Args:
        folder: where their files are; made when the first joins.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def join(self, node: str) -> None:
        """Say that this process lives under that name.

        Raises:
            ConfigurationError: the file cannot be made, or this system has no such locks.
        """
        lock = locks()
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            file = os.open(self._path(node), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            lock.flock(file, lock.LOCK_EX | lock.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(f"{self._folder}: the store cannot say that this process lives: {error}") from None
        self._held[node] = file

    def is_alive(self, node: str) -> bool:
        """Return whether a process lives under that name; the file of one that does not is removed."""
        if node in self._held:
            return True
        lock, path = locks(), self._path(node)
        try:
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            lock.flock(file, lock.LOCK_EX | lock.LOCK_NB)
        except OSError:
            return True
        else:
            with contextlib.suppress(OSError):
                path.unlink()
            return False
        finally:
            os.close(file)

    def leave(self) -> None:
        """Say that this process is done with the store."""
        for node, file in self._held.items():
            with contextlib.suppress(OSError):
                self._path(node).unlink()
            os.close(file)
        self._held.clear()

    def _path(self, node: str) -> Path:
        if not NAME.fullmatch(node):
            raise ValueError(f"{node!r:.80} is not the name of a node: 1 to 64 letters, digits, '_' and '-'")
        return self._folder / node


def locks() -> ModuleType:
    """Return the module with the locks of files.

    Raises:
        ConfigurationError: this system has none.
    """
    try:
        import fcntl  # noqa: PLC0415  POSIX only
    except ImportError:
        raise ConfigurationError(
            "a durable store needs the file locks of POSIX (flock), which this system lacks"
        ) from None
    return fcntl
