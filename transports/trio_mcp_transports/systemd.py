"""Under systemd: sockets that it has opened (sd_listen_fds(3)), and news for it (sd_notify(3)).

Both are a few variables of the environment and a datagram, so no library is needed.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import closing
from typing import Final

from trio_mcp.errors import ConfigurationError

logger = logging.getLogger("trio_mcp.http")

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
    return UNIX_HOST if sock.family == socket.AF_UNIX else str(sock.getsockname()[0])


def notify(state: str) -> bool:
    """Send systemd a state, such as "READY=1"; return whether it was sent. Without systemd nothing happens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    # A path, or a name in the abstract namespace.
    if not address.startswith(("/", "@")):
        return False
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)) as sock:
        sock.setblocking(False)
        try:
            sock.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as error:
            logger.warning("systemd could not be notified of %s: %s", state, error.strerror)
            return False
    return True
