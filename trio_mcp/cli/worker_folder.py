"""The folder of the workers of one command: who makes it, and who removes it.

The parent makes it, and removes it when its workers have ended. If the parent is killed, the last worker does that; if that is
killed too, the next command with workers. Each of them has a shared lock on the folder for as long as it lives, so only one that
none of them uses can be locked alone. The lock also keeps programs out that clean up old temporary files (systemd-tmpfiles).
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ..base.systems import file_locks, needs_posix
from ..session.options import Workplace
from .command import CommandError, Status

PREFIX: Final = "trio-mcp-workers-"
FLAGS: Final[int] = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
MOST_PATH: Final = 88
"""Bytes of the path of the folder: sockets are in it."""


class FolderLock:
    """The lock of one process on the folder, shared with others. Raises `OSError`, also if the folder is gone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = os.open(folder, FLAGS)
        try:
            self._locks = file_locks()
            self._locks.flock(self._file, self._locks.LOCK_SH)
            # Another command may have taken it for one that was left, before it was locked.
            folder.stat()
        except BaseException:
            os.close(self._file)
            raise

    def leave(self) -> None:
        """Release the lock, and remove the folder if no other process has one. Called once."""
        # To ask for the lock alone gives up the shared one (flock(2)): of two processes that end together, the later one gets it.
        with suppress(BlockingIOError):
            self._locks.flock(self._file, self._locks.LOCK_EX | self._locks.LOCK_NB)
            shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._file)


@contextmanager
def worker_folder() -> Iterator[Path]:
    """A private folder with keys, for the length of the block.

    Raises:
        CommandError: there is no place for it, or this system has no such locks.
    """
    if sys.platform == "win32":
        raise CommandError(needs_posix("a command with several processes"))
    try:
        remove_left()
        folder, lock = made_folder()
    except OSError as error:
        raise CommandError(f"there is no place for the folder of the workers: {error}", Status.UNREACHABLE) from None
    try:
        write_keys(folder)
        yield folder
    finally:
        # A worker that was just killed may still have its lock.
        shutil.rmtree(folder, ignore_errors=True)
        lock.leave()


def made_folder() -> tuple[Path, FolderLock]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        if len(os.fsencode(folder)) > MOST_PATH:
            folder.rmdir()
            raise CommandError(
                f"the path of {folder} is too long for sockets: set TMPDIR to a shorter one", Status.UNREACHABLE
            )
        with suppress(FileNotFoundError):
            return folder, FolderLock(folder)


def remove_left() -> None:
    """Remove the folders of this user that no process uses."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        # What cannot be looked at is no reason not to serve.
        with suppress(OSError):
            if sys.platform != "win32" and folder.lstat().st_uid == os.getuid():
                FolderLock(folder).leave()


def write_keys(folder: Path) -> None:
    """Write keys for the store of servers that name none."""
    keys = Workplace(folder, announces=False).keys_file
    keys.touch(0o600)
    keys.write_text(urlsafe_b64encode(secrets.token_bytes(32)).decode())
