"""Notices between the processes that use one SQLite file: datagrams to a socket of each, in the folder beside the file."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import trio

from ..base.systems import needs_posix
from ..storage import MISSED, MOST_NOTICE, Missed, Notice, notice_of

# The queue of a socket has room for a few datagrams (`net.unix.max_dgram_qlen`). A sender that finds it full makes the file
# `*.missed` beside the socket, which the receiver looks for before it takes a datagram:
#
#   sender                         receiver
#   send: the queue is full
#                                  takes everything, finds no file
#   makes the file
#   send: there is room            wakes, and finds the file
#
# If the second send finds the queue full again, the receiver has yet to take something, and finds the file then.

SUFFIX: Final = ".notices"
MOST_ADDRESS: Final = 103
"""Bytes that the address of a socket may have on each system; Linux has room for four more."""
NAME_BYTES: Final = len(f"/{'0' * 16}{SUFFIX}")
DESCRIPTORS: Final = "/proc/self/fd"
"""A short way to open folders, which Linux has."""
WAKE: Final = b""
"""A datagram that says nothing but that there may be a file."""


class Notices:
    """A socket in the folder, which takes notices; leaving the block removes it. Raises `OSError`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        name = secrets.token_hex(8) + SUFFIX
        self._path = folder / name
        self._missed = missed_beside(self._path)
        bound = datagram_socket()
        try:
            with reached(folder) as where:
                bound.bind(f"{where}/{name}")
            self._path.chmod(0o600)
            self._socket = trio.socket.from_stdlib_socket(bound)
        except BaseException:
            bound.close()
            raise

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notice | Missed:
        """Return the next notice, or `MISSED` after some that there was no room for."""
        while True:
            if self._missed.exists():
                self._missed.unlink(missing_ok=True)
                await trio.lowlevel.checkpoint()
                return MISSED
            if data := await self._socket.recv(MOST_NOTICE + 1):
                return notice_of(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._socket.close()
        for path in (self._path, self._missed):
            path.unlink(missing_ok=True)


def send(folder: Path, data: bytes) -> None:
    """Send a notice to each socket of the folder, and remove those whose process has ended. Raises `OSError`."""
    if not folder.is_dir():
        return
    with reached(folder) as where, datagram_socket() as sender:
        sender.setblocking(False)
        for name in os.listdir(folder):
            if name.endswith(SUFFIX):
                _send(sender, f"{where}/{name}", data, folder / name)


def _send(sender: socket.socket, address: str, data: bytes, path: Path) -> None:
    try:
        sender.sendto(data, address)
    except BlockingIOError:
        missed_beside(path).touch(mode=0o600)
        with contextlib.suppress(OSError):
            sender.sendto(WAKE, address)
    except ConnectionRefusedError:
        for each in (path, missed_beside(path)):
            each.unlink(missing_ok=True)
    except FileNotFoundError:
        return


def datagram_socket() -> socket.socket:
    if sys.platform == "win32":
        raise OSError(needs_posix("a notice to other processes"))
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def missed_beside(path: Path) -> Path:
    return path.with_suffix(".missed")


@contextlib.contextmanager
def reached(folder: Path) -> Iterator[str]:
    """Return a path of a folder that is short enough for the addresses of the sockets in it, where the system has one."""
    if sys.platform == "win32" or len(os.fsencode(folder)) + NAME_BYTES <= MOST_ADDRESS:
        yield str(folder)
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{DESCRIPTORS}/{descriptor}"
    finally:
        os.close(descriptor)
