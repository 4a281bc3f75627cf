"""Which processes live: each holds the lock of a file (flock) under its name, which its end releases, however it comes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sys
import weakref
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from ..base.logs import peer_logger
from ..base.named_tuples import NamedTuple
from ..base.systems import file_locks
from ..errors import ConfigurationError
from ..storage import StoreError

# A living process holds the shared lock. Who asks tries the exclusive one, to remove the file of a dead process, and that must
# not make the process look alive to somebody else who asks at the same moment:
#
#   exclusive lock   then the shared one   still at its path   the process
#   granted                                                    is dead
#   refused          granted               yes                 lives: it holds the shared lock, too
#   refused          granted               no                  is dead: who held the exclusive lock has removed the file
#   refused          refused                                   is dead: somebody holds the exclusive lock
#
# A process that joins holds the exclusive lock for a moment, and lives from when it has joined.
#
# A file may vanish while its process lives: by a program that cleans up old files, by `rm -r`, with its folder. From then on the
# process looks dead, and others take over what it has. So it looks for its file before each write, and every few seconds, and
# recreates it (`remake`): it lives, and keeps what no other process has taken meanwhile. It need not know what: another process
# that takes something over puts the record that says whose it is in a new version, and whatever a process writes about what it
# owns names the version that it knows, in the same transaction. Sessions in which a client waits, and nothing is written, are
# looked up after a recreation (`Store.lapses`). A file that vanishes between the look and the commit does no more harm than that.
# To fail all writes instead, as for a database that was replaced, would be no safer, and programs that clean up
# would stop servers.
#
# If the file cannot be recreated, or the folder cannot be read, all writes fail until that has changed.
#
# A lock belongs to the open file, and a forked child has its parent's files: it closes them, or a killed process would look alive
# for as long as any of its children.


logger = peer_logger("trio_mcp.stores")

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
ATTEMPTS: Final = 100
"""How often a file may be removed in the moment in which it is locked."""


class Nodes:
    """The processes that use one store on this machine.

    Args:
        folder: where their files are; made when the first joins.

    Attributes:
        remade: counts the files that had vanished and were recreated.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.remade = 0
        self._held: dict[str, int] = {}
        self._contents: dict[str, bytes] = {}
        """What is in the files of this process."""

    def join(self, node: str, about: bytes = b"") -> None:
        """Say that this process lives under that name, and remove the files of those that do not live any more.

        Args:
            about: what `living` returns for it.

        Raises:
            ConfigurationError: the file cannot be made, or this system has no such locks.
        """
        path = self._path(node)
        if node in self._held:
            return
        try:
            lock = file_locks()
            self.folder.mkdir(mode=0o700, exist_ok=True)
            for other in os.listdir(self.folder):
                if NAME.fullmatch(other):
                    self.is_alive(other)
            register_fork()
            self._contents[node] = contents = content_of(node, about)
            self._held[node] = _locked(path, lock, contents)
            _joined.add(self)
        except OSError as error:
            raise ConfigurationError(f"{self.folder}: the store cannot say that this process lives: {error}") from None

    def is_alive(self, node: str) -> bool:
        """Return whether a process lives under that name; the file of one that does not is removed."""
        return node in self._held or self._is_locked(self._path(node))

    def _is_locked(self, path: Path) -> bool:
        lock = file_locks()
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            if not try_lock(lock, file, lock.LOCK_EX):
                return try_lock(lock, file, lock.LOCK_SH) and is_at(path, file)
            if is_at(path, file):
                path.unlink()
            return False
        finally:
            os.close(file)

    def living(self) -> dict[str, bytes]:
        """Return the processes that live, by their names, and what each says about itself. Raises `OSError`."""
        found: dict[str, bytes] = {}
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        for name in names:
            # The files of notices have another form of name.
            if NAME.fullmatch(name) and self._is_locked(self.folder / name):
                with contextlib.suppress(FileNotFoundError):
                    node, separator, about = (self.folder / name).read_bytes().partition(b"\0")
                    # Older versions leave their files empty.
                    if separator:
                        found[node.decode(errors="replace")] = about
        return found

    def remake(self) -> None:
        """Recreate the removed lock files of this process.

        Raises:
            OSError: one cannot be made, or it cannot be seen whether it is there.
        """
        for node, file in list(self._held.items()):
            path = self._path(node)
            if not is_at(path, file):
                self.folder.mkdir(mode=0o700, exist_ok=True)
                self._held[node] = _locked(path, file_locks(), self._contents[node])
                os.close(file)
                self.remade += 1
                logger.warning("%s was removed while in use; it was recreated", path)

    def leave(self) -> None:
        """Say that this process is done with the store."""
        for node, file in self._held.items():
            with contextlib.suppress(OSError):
                if is_at(self._path(node), file):
                    self._path(node).unlink()
            os.close(file)
        self._held.clear()

    def disown(self) -> None:
        """Close the files without a change to their locks, in a child that has a copy of them."""
        for file in self._held.values():
            os.close(file)
        self._held.clear()

    def _path(self, node: str) -> Path:
        # A part of the name may be chosen by people, for people.
        is_file_name = NAME.fullmatch(node) is not None
        return self.folder / (node if is_file_name else hashlib.sha256(node.encode()).hexdigest())


def content_of(node: str, about: bytes) -> bytes:
    # The name of the file may be a digest.
    return node.encode() + b"\0" + about


def _locked(path: Path, lock: ModuleType, content: bytes) -> int:
    """Return the descriptor of a file with this content that is locked. Raises `OSError`."""
    for _ in range(ATTEMPTS):
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        # Not locked if another process looks at it, or lives. It may have been removed before it was locked, or between the two
        # locks: the one is released before the other is taken.
        if try_lock(lock, file, lock.LOCK_EX):
            os.truncate(file, 0)
            os.write(file, content)
            if try_lock(lock, file, lock.LOCK_SH) and is_at(path, file):
                return file
        os.close(file)
    raise BlockingIOError(f"another process lives under the name {path.name}")


def try_lock(lock: ModuleType, file: int, kind: int) -> bool:
    """Take a lock of an open file in place of the one that it has, and return True; or return False at once."""
    try:
        lock.flock(file, kind | lock.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_joined: Final[weakref.WeakSet[Nodes]] = weakref.WeakSet()
"""Those that may hold locks in this process."""


@cache
def register_fork() -> None:
    """From now on, let forked children close the files whose locks say that this process lives."""
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=disown_all)


def disown_all() -> None:
    for nodes in list(_joined):
        nodes.disown()


def is_at(path: Path, file: int) -> bool:
    """Return whether an open file still has this path. Of processes that use the store, only one with its lock removes it.

    Raises:
        OSError: it cannot be seen.
    """
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


# Which file a path leads to, whether it may grow, and whether the files of a process are still at their paths.
#
# A file that is deleted while it is open takes writes all the same, and they are lost with it.


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
        """Recreate a missing lock file; raise `StoreError` if that fails, or if the database was deleted or replaced."""
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
    if sys.platform == "win32":
        return False
    import resource  # noqa: PLC0415  POSIX only

    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    try:
        return limit != resource.RLIM_INFINITY and os.stat(path).st_size >= limit
    except OSError:
        return False
