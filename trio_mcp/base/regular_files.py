"""Reading and writing regular files, and nothing else.

Opening a FIFO waits for its other end, reading a device need not end, and a device that is replaced by a file is lost. A path may
name another thing by the time it is opened: a file is opened without waiting, and what was opened is looked at. A link is
followed; whether it may lead anywhere is for the caller to say.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Generator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final

MAX_CONFIGURATION: Final = 4 * 1024 * 1024
"""Bytes of a file with settings: of a host, of a project, of variables, of keys."""

KINDS: Final = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
WITHOUT_WAITING: Final[int] = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class NotRegularFile(OSError):
    """What a path names is a FIFO, a socket or a device."""


class FileTooLarge(OSError):
    """A file has more bytes than may be read."""


def check_kind(path: str | PathLike[str]) -> None:
    """Raise `OSError` if a path names something else than a regular file, or nothing."""
    _check_mode(os.stat(path).st_mode, path)


def open_regular(path: str | PathLike[str], flags: int, mode: int = 0o666) -> int:
    """Return a descriptor of a regular file.

    Args:
        flags, mode: as for `os.open`. With `O_CREAT` the file need not exist.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    try:
        # First by its name: some devices act when they are opened.
        check_kind(path)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    descriptor = os.open(path, flags | WITHOUT_WAITING, mode)
    try:
        _check_mode(os.fstat(descriptor).st_mode, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | PathLike[str], limit: int) -> bytes:
    """Return what is in a regular file.

    Raises:
        OSError: it cannot be read, is no regular file, or has more bytes than the limit.
    """
    with open(open_regular(path, os.O_RDONLY), "rb") as file:
        # It may grow meanwhile, and one of /proc says that it is empty.
        content = file.read(limit + 1) if os.fstat(file.fileno()).st_size <= limit else None
    if content is None or len(content) > limit:
        raise FileTooLarge(errno.EFBIG, f"it has more than {limit} bytes, which is the limit", os.fspath(path))
    return content


def write_regular(path: str | PathLike[str], content: bytes) -> None:
    """Write a regular file in its place, or make it. Raises `OSError`."""
    with open(open_regular(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
        file.truncate(0)
        file.write(content)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Generator[BinaryIO]:
    """Give a file that takes the place of another one at the end of the block: a reader sees the old content or the new one.

    It keeps the permissions of the one that it replaces, and is private until then. A link is replaced, too.

    Args:
        mode: its permissions if there is no file yet, as for `os.open`.

    Raises:
        OSError: the file cannot be written, or what is there is no regular file. Nothing was changed.
    """
    try:
        check_kind(path)
        permissions = stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        permissions = None
    # Not the process ID: in a container it is always 1, and a killed process leaves its file behind.
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | WITHOUT_WAITING
    # Files of settings have keys in them. Others must not read them in the moment before the permissions are copied.
    descriptor = os.open(new, flags, mode if permissions is None else 0o600)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if permissions is not None:
            os.chmod(new, permissions)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


def _check_mode(mode: int, path: str | PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if not stat.S_ISREG(mode):
        kind = KINDS.get(stat.S_IFMT(mode), "of another kind")
        raise NotRegularFile(errno.EINVAL, f"it is {kind}, and not a regular file", os.fspath(path))
