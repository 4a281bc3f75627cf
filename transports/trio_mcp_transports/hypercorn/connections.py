"""The open connections of one server: counted, capped, and cut together."""

from __future__ import annotations

import resource
import weakref
from contextlib import suppress
from time import time
from typing import Final

import trio
from hypercorn.config import Config

from trio_mcp.errors import LimitExceeded
from trio_mcp.logs import RepeatedRecords, peer_logger
from trio_mcp.runtime import Account
from trio_mcp.session.sizes import CONNECTION_SIZE

from .config import ConnectionLimits, limits_of
from .response import fields_bytes

logger = peer_logger("trio_mcp.http")

MAX_RECV: Final = 1 << 16
REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nretry-after: 1\r\n"
    b"connection: close\r\n\r\n%b"
)
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
        self._own_head = b""
        self._own_head_time = 0
        self.records = RepeatedRecords(logger)
        """What the peers of this server can cause again and again, by another connection each time."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: trio.CancelScope, account: Account) -> str | None:
        """Count a connection in, or return the reason to refuse it: the limit is reached, or the memory budget."""
        refusal = None
        if len(self._open) >= self._limit:
            refusal = f"{self._limit} connections are open, which is the limit (max_connections)"
        else:
            try:
                account.check(CONNECTION_SIZE)
            except LimitExceeded as error:
                refusal = str(error)
        if refusal is None:
            account.draw(CONNECTION_SIZE)
            self._open.add(connection)
        else:
            self.records.log("a new connection is refused: %s", refusal)
        return refusal

    def own_head(self, config: Config) -> bytes:
        """Return the fields that every response has; they change once a second, with its date."""
        now = int(time())
        if now != self._own_head_time:
            self._own_head_time = now
            self._own_head = fields_bytes(config.response_headers("h11"))
        return self._own_head

    def remove(self, connection: trio.CancelScope) -> None:
        self._open.discard(connection)

    def cut(self) -> None:
        """Cancel what every open connection is doing; its last write may take another second."""
        for connection in self._open:
            connection.cancel()

    async def refuse(self, stream: trio.abc.Stream, reason: str) -> None:
        """Answer 503 with the reason, and close; under a flood, and on TLS, just close."""
        if isinstance(stream, trio.SocketStream) and self._refusing < MAX_REFUSING:
            self._refusing += 1
            try:
                with trio.move_on_after(REFUSE_SECONDS), suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    await stream.send_all(REFUSAL % (len(reason), reason.encode()))
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
