"""The sockets that a server listens on."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, TypeAlias

import trio

from trio_mcp.session.transport import CannotListen

from .systemd import activated_sockets

Address: TypeAlias = tuple[str | int | bytes, ...]

BACKLOG: Final = 1024
"""Connections that may wait until one of several processes accepts them."""
UNUSABLE_ADDRESS_ERRNOS: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


async def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen, for processes that share them: those that systemd passes, or else those of an address.

    Raises:
        CannotListen: see `bind_sockets`.
        ConfigurationError: see `activated_sockets`.
    """
    sockets = activated_sockets()
    if sockets is None:
        sockets = await bind_sockets(host, port)
        for sock in sockets:
            sock.listen(BACKLOG)
    return sockets


async def bind_sockets(host: str, port: int) -> list[socket.socket]:
    """Stream sockets bound to every usable address of `host`, all with the same port; not listening yet.

    Raises:
        CannotListen: the port is taken, or no address of `host` is ours; the message says which. No socket is left open.
    """
    try:
        found = await trio.socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return bind_all([(family, address) for family, _, _, _, address in found], port)
    except OSError as error:
        reason = "the port is taken" if error.errno == errno.EADDRINUSE else error.strerror
        raise CannotListen(error.errno, f"cannot listen on {host}, port {port}: {reason}") from None


def bind_all(addresses: Sequence[tuple[int, Address]], port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    unusable: OSError | None = None
    with ExitStack() as undo:
        for family, address in addresses:
            # With port 0 the first socket gets a free port, and the others must take the same one: clients try all
            # addresses of a name.
            chosen = bound[0].getsockname()[1] if bound else port
            try:
                bound.append(undo.enter_context(bind(family, (address[0], chosen, *address[2:]))))
            except OSError as error:
                # A name may resolve to an address that this host does not have (`::1` without IPv6). It is skipped if
                # another one works.
                if error.errno not in UNUSABLE_ADDRESS_ERRNOS:
                    raise
                unusable = error
        if unusable is not None and not bound:
            raise unusable
        undo.pop_all()
    return bound


def bind(family: int, address: Address) -> socket.socket:
    with ExitStack() as undo:
        sock = socket.socket(family, socket.SOCK_STREAM)
        undo.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Without it `::` would take IPv4 too on Linux, and binding `0.0.0.0` after it would fail.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
        undo.pop_all()
    return sock
