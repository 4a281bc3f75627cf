"""Serving under systemd, or under another parent that speaks its protocol, such as that of workers.

It passes sockets that it has opened (sd_listen_fds(3)), and receives news (sd_notify(3)), such as that the event loop still turns
(sd_watchdog_enabled(3)). Both are a few variables of the environment and a datagram, so no library is needed.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Final

import trio

from trio_mcp.base.service_notices import notify
from trio_mcp.errors import ConfigurationError

FIRST_FD: Final = 3
MAX_SOCKETS: Final = 64
UNIX_HOST: Final = "unix"
"""The host of a Unix socket, which only this machine can reach."""


def activated_sockets() -> list[socket.socket] | None:
    """Return the listening sockets that systemd has passed to this process; None if it has passed none.

    They are taken once: a second call, and child processes, find none.

    Raises:
        ConfigurationError: one is not a stream socket that listens.
    """
    names = ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES")
    pid, count, _ = (os.environ.get(name, "") for name in names)
    # Inherited by a child of the process that they were meant for.
    if pid != str(os.getpid()):
        return None
    for name in names:
        os.environ.pop(name, None)
    number = int(count) if count.isdigit() and len(count) < 4 else 0
    if not 0 < number <= MAX_SOCKETS:
        raise ConfigurationError(f"LISTEN_FDS must be a number from 1 to {MAX_SOCKETS}, not {count!r:.40}")
    return [listening_socket(fd) for fd in range(FIRST_FD, FIRST_FD + number)]


def listening_socket(fd: int) -> socket.socket:
    """Return the socket with this descriptor."""
    try:
        sock = socket.socket(fileno=fd)
        listens = sock.type == socket.SOCK_STREAM and sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise ConfigurationError(
            f"systemd has passed the descriptor {fd}, which is no socket: {error.strerror}"
        ) from None
    if not listens:
        raise ConfigurationError(f"the socket {fd} of systemd must be a stream that listens: ListenStream=, Accept=no")
    # Child processes of tools are not to have it.
    os.set_inheritable(fd, False)
    sock.setblocking(False)
    return sock


def host_of(sock: socket.socket) -> str:
    """Return the address that a socket listens on, without its port; `UNIX_HOST` for a Unix socket."""
    if sys.platform != "win32" and sock.family == socket.AF_UNIX:
        return UNIX_HOST
    return str(sock.getsockname()[0])


def watchdog_seconds() -> float | None:
    """Return within how many seconds this process must say again and again that it works; None if nothing waits for that.

    Raises:
        ConfigurationError: `WATCHDOG_USEC` is not a number of microseconds.
    """
    limit, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    # Inherited by a child of the process that it was meant for.
    if not limit or pid not in ("", str(os.getpid())):
        return None
    if not limit.isdigit() or len(limit) > 15 or int(limit) == 0:
        raise ConfigurationError(f"WATCHDOG_USEC must be a number of microseconds, not {limit!r:.40}")
    return int(limit) / 1e6


async def keep_watchdog(seconds: float | None) -> None:
    """Notify systemd at every half of these seconds that the event loop turns, until cancelled; None for never."""
    while seconds is not None:
        notify("WATCHDOG=1")
        await trio.sleep(seconds / 2)
