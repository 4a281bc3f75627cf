"""The open connections of one server: counted, capped, watched by one task, and cut together."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from time import time
from typing import Final, Protocol

import trio
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import Event

from trio_mcp.base.logs import RepeatedRecords, peer_logger
from trio_mcp.base.shared_limits import CONNECTIONS
from trio_mcp.errors import LimitExceeded
from trio_mcp.runtime import Account
from trio_mcp.runtime.quota import Quota
from trio_mcp.session.envelope import CONNECTION_SIZE

from ..asgi.responses import HttpApp
from .config import ConnectionLimits, limits_of
from .response import fields_bytes

# Writes that wait for a few turns of the event loop, so that what is said meanwhile shares them.

# A write costs as much as four turns of the event loop.
GATHERING_TURNS: Final = 4


class Gatherer:
    """Makes the writes that wait, for all connections of a server: one task for each of them would cost more than it saves."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []
        self._idle = trio.lowlevel.ParkingLot()

    def add(self, write: Callable[[], None]) -> None:
        """Call `write`, which must not raise, within `GATHERING_TURNS`."""
        self._waiting.append(write)
        self._idle.unpark()

    async def run(self) -> None:
        """Make the writes until cancelled."""
        while True:
            if not self._waiting:
                await self._idle.park()
            await trio.lowlevel.checkpoint()
            for _ in range(GATHERING_TURNS - 2):
                await trio.lowlevel.checkpoint()
            waiting, self._waiting = self._waiting, []
            for write in waiting:
                write()


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
SENDING_SECONDS: Final = 0.5
"""For how long a server that ends lets the application go on for requests that are on their way."""
LATE_SECONDS: Final = 2.0
"""For how long it still reads them, and answers 503: long enough for a distant or busy client that has just connected."""
SENDING_LOOK_SECONDS: Final = 0.01
# Descriptors left for listeners, refusals and the app itself.
RESERVED_FILES: Final = 48


class OpenConnection(Protocol):
    """One connection.

    Attributes:
        scope: what it runs in.
    """

    scope: trio.CancelScope

    @property
    def is_sending(self) -> bool:
        """Whether a request is on its way to the application: it has begun no response to it, or has not got it yet."""
        ...

    def end_if_idle(self) -> None:
        """Close it if no request is in progress: at once, or after `LATE_SECONDS` if one is on its way."""

    def limit_last_write(self) -> None:
        """Let no write take longer than a second from now on."""


class Connections:
    """The open connections of one server.

    Attributes:
        gatherer: makes the writes of all connections that wait for others.
    """

    def __init__(self, limit: int) -> None:
        self.gatherer = Gatherer()
        self._quota = Quota(CONNECTIONS, limit)
        self._open: dict[OpenConnection, Hashable | None] = {}
        """Who has opened each."""
        self._is_watched = False
        self._last_closed = trio.Event()
        self._refusing = 0
        self._own_head = b""
        self._own_head_time = 0
        self.records = RepeatedRecords(logger)
        """What the peers of this server can cause again and again, by another connection each time."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: OpenConnection, account: Account, caller: Hashable | None) -> str | None:
        """Count a connection in, or return the reason to refuse it: a limit is reached, or the memory budget.

        Args:
            caller: who has opened it, see `Quota`: which principal it is for is not known before its first request.
        """
        try:
            self._quota.check(caller)
            account.check(CONNECTION_SIZE)
        except LimitExceeded as error:
            refusal = str(error)
            self.records.log("a new connection is refused: %s", refusal)
            return refusal
        account.draw(CONNECTION_SIZE)
        self._quota.add(caller)
        self._open[connection] = caller
        return None

    def own_head(self, config: Config) -> bytes:
        """Return the fields that every response has; they change once a second, with its date."""
        now = int(time())
        if now != self._own_head_time:
            self._own_head_time = now
            self._own_head = fields_bytes(config.response_headers("h11"))
        return self._own_head

    def remove(self, connection: OpenConnection) -> None:
        if connection in self._open:
            self._quota.give_back(self._open.pop(connection))
        if not self._open:
            self._last_closed.set()

    def watch(self, terminated: Event) -> None:
        """Start the task that all connections share, if it does not run yet, in the nursery of the task that calls.

        One task for each connection would take a fifth of the memory of an idle one.

        Args:
            terminated: the server accepts no more connections.
        """
        nursery = trio.lowlevel.current_task().parent_nursery
        if not self._is_watched and nursery is not None:
            self._is_watched = True
            nursery.start_soon(self._watch, terminated)

    async def _watch(self, terminated: Event) -> None:
        """Wait for the end of the server: gracefully, then by force."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.gatherer.run)
                await terminated.wait()
                # An idle connection has nothing to lose. A busy one may answer first, and is closed then.
                for connection in tuple(self._open):
                    connection.end_if_idle()
                while self._open:
                    self._last_closed = trio.Event()
                    await self._last_closed.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._is_watched = False
            # If connections are open, the server is being cut. Writes are shielded, so nothing but their deadlines ends them.
            for connection in self._open:
                connection.limit_last_write()

    async def wait_received(self, seconds: float) -> None:
        """Wait until the requests that are on their way have come, for at most these seconds."""
        with trio.move_on_after(seconds):
            # Looked at, once in the life of a server: an event would cost each request. The first look is after the last accept.
            await trio.sleep(SENDING_LOOK_SECONDS)
            while any(connection.is_sending for connection in self._open):  # noqa: ASYNC110
                await trio.sleep(SENDING_LOOK_SECONDS)

    def cut(self) -> None:
        """Cancel what every open connection is doing; its last write may take another second."""
        for connection in self._open:
            connection.scope.cancel()
            connection.limit_last_write()

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


@dataclass(slots=True, frozen=True)
class ConnectionFacts:
    """What the requests of a connection have in common, and what hypercorn gives each.

    Attributes:
        root_path: the prefix that hypercorn's setting names.
        is_logged: hypercorn's own access log is on.
    """

    app: HttpApp
    config: Config
    context: WorkerContext
    connections: Connections
    client: tuple[str, int] | None
    tls: bool
    root_path: str = ""
    is_logged: bool = False


# Kept beside the config and not in it: `hypercorn -k trio` makes a plain `Config`, which has no place for it.
_connections: weakref.WeakKeyDictionary[Config, Connections] = weakref.WeakKeyDictionary()


def connections_of(config: Config) -> Connections:
    """The connections of the server that runs with `config`."""
    if config not in _connections:
        _connections[config] = Connections(connection_limit(limits_of(config)))
    return _connections[config]


def connection_limit(limits: ConnectionLimits) -> int:
    """`max_connections`, lowered so that this many open connections leave the process some files to open."""
    if sys.platform == "win32":
        return limits.max_connections
    import resource  # noqa: PLC0415  POSIX only

    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return limits.max_connections
    # Without free descriptors `accept` fails, and so does every file that the app wants to open.
    return max(1, min(limits.max_connections, files - RESERVED_FILES))
