"""The open connections of one server: counted, capped, and cut together."""

# pyright: basic
# Hypercorn's own types are partial.
from __future__ import annotations

import resource
import weakref
from contextlib import suppress
from typing import Final

import trio
from hypercorn.config import Config

from trio_mcp.logs import RepeatedRecords, peer_logger

from .config import ConnectionLimits, limits_of

logger = peer_logger("trio_mcp.http")

MAX_RECV: Final = 1 << 16
REFUSAL: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
# Under a flood each of them holds a socket.
REFUSE_SECONDS: Final = 0.25
# Refusals being written at once; beyond that a connection is closed without a word.
MAX_REFUSING: Final = 16
# Descriptors left for listeners, refusals and the app itself.
RESERVED_FILES: Final = 48


class Connections:
    """The open connections of one server, each by the scope that it runs in."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: set[trio.CancelScope] = set()
        self._refusing = 0
        self.records = RepeatedRecords(logger)
        """What the peers of this server can cause again and again, by another connection each time."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: trio.CancelScope) -> bool:
        """Count a connection in, unless the limit is reached."""
        if len(self._open) < self._limit:
            self._open.add(connection)
            return True
        self.records.log("a new connection is refused: %d are open, the limit (max_connections)", self._limit)
        return False

    def remove(self, connection: trio.CancelScope) -> None:
        self._open.discard(connection)

    def cut(self) -> None:
        """Cancel what every open connection is doing; its last write may take another second."""
        for connection in self._open:
            connection.cancel()

    async def refuse(self, stream: trio.abc.Stream) -> None:
        """Answer 503 and close; under a flood, and on TLS, just close."""
        if isinstance(stream, trio.SocketStream) and self._refusing < MAX_REFUSING:
            self._refusing += 1
            try:
                with trio.move_on_after(REFUSE_SECONDS), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await stream.send_all(REFUSAL)
                    await stream.send_eof()
                    # Closing with an unread request would turn the answer into a reset.
                    await stream.receive_some(MAX_RECV)
            finally:
                self._refusing -= 1
        await trio.aclose_forcefully(stream)


# Kept beside the config and not in it: `hypercorn -k trio` makes a plain `Config`, which has no place for it.
_connections: weakref.WeakKeyDictionary[Config, Connections] = weakref.WeakKeyDictionary()


def connections_of(config: Config) -> Connections:
    """The connections of the server that runs with `config`."""
    if config not in _connections:
        _connections[config] = Connections(connection_limit(limits_of(config)))
    return _connections[config]


def connection_limit(limits: ConnectionLimits) -> int:
    """`max_connections`, lowered so that this many open connections leave the process some files to open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return limits.max_connections
    # Without free descriptors `accept` fails, and so does every file that the app wants to open.
    return max(1, min(limits.max_connections, files - RESERVED_FILES))
