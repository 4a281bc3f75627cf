"""A connection that is kept: to a server of a group, or to the one behind a mounted proxy."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Generic, TypeVar

import trio

from ..base.backoff import STABLE_AFTER, Backoff
from ..base.groups import single_exception
from ..base.logs import peer_logger
from ..client.client import Client
from ..client.requester import would_fail_again
from ..errors import (
    Disconnected,
    McpError,
    ProtocolError,
    RequestTimeout,
    ServerUnavailable,
    Unreachable,
    without_traceback,
)
from ..session.subscriptions import LISTS, Change, ChangeKind, announced_lists, filter_of
from ..types.capabilities import declares

# A client connects again by itself, but only when a request needs it, and over HTTP it does not find out before. What offers the
# tools of a server as its own has to know which there are, so here a task does it at once:
#
#   status         what happens                                         what moves it
#   -----------    -------------------------------------------------    ------------------------------------------------------
#   CONNECTING     the first attempt to open a client, or one of the    an attempt that succeeds: CONNECTED
#                  first `ATTEMPTS` after the connection was lost       the first that fails at the start, or the last of
#                                                                       `ATTEMPTS`: UNAVAILABLE
#   CONNECTED      calls reach the server; its changes are followed     a lost connection or stream, or a call that could not be
#                                                                       sent: CONNECTING
#   UNAVAILABLE    attempts, up to `longest` seconds apart              an attempt that succeeds: CONNECTED
#   CLOSED         nothing any more
#
# A call waits while the server is CONNECTING, so that the restart of a server is a delay and no error, and fails at once while
# it is UNAVAILABLE. After a loss an attempt is a ping of the same client, which opens its connection or session again. Another
# client is opened only if that one cannot go on: it has ended, the server rejects what it sends, as one of another era does, or
# it was lost again before the server's changes were followed.
#
# Nothing else connects meanwhile, so that one back-off decides how often: subscriptions end with the connection (`until_lost`),
# and are made again in the next one. A server counts as CONNECTED when its changes are followed: what is listed before may change
# without a sign of it.


C = TypeVar("C", bound=Client)
T = TypeVar("T")

logger = peer_logger("trio_mcp.client")

ATTEMPTS: Final = 5
"""Attempts to reach a server that was lost, before calls no longer wait for it."""

BACKOFF: Final = Backoff(first=0.5, longest=30.0)
"""How long to wait before the next attempt."""

LISTEN_SECONDS: Final = 5.0
"""How long a server that was connected to is not used yet, for its changes to be followed before its lists are read."""


class ServerStatus(StrEnum):
    """Where a connection to a server stands, such as that of a group."""

    CONNECTING = "connecting"
    """It is being opened for the first time, or again since a moment; calls wait."""
    CONNECTED = "connected"
    UNAVAILABLE = "unavailable"
    """The server cannot be reached; calls fail at once, and attempts go on."""
    CLOSED = "closed"


REFRESH_LISTS_ON: Final = frozenset({ServerStatus.CONNECTED, ServerStatus.UNAVAILABLE})


@dataclass(frozen=True, slots=True)
class ServerState:
    """The state of the connection to one server.

    Attributes:
        server: its name, such as that in its group.
        status: where the connection stands.
        failures: attempts to connect that failed, one after the other.
        error: why the last of them failed, or how the connection was lost; None while it is connected.
    """

    server: str
    status: ServerStatus
    failures: int = 0
    error: Exception | None = None


@dataclass(slots=True, eq=False)
class Connection(Generic[C]):
    """The connection to a server, kept by a task that runs `keep`.

    Attributes:
        name: of the server.
        whose: the server, in the log and in errors, such as "the server 'files' of a group".
        make: returns a client that is not open; it calls the function when its connection is lost.
        open_timeout: seconds that one attempt may take.
        on_state: called with each new state.
        on_change: called with each change that the server announces, and with one of each list when it was lost, or is back.
        uris: returns those of the resources to follow, each time that the server was connected to.
        state: the state.
        tried: set when the first attempt has ended, well or not.
    """

    name: str
    whose: str
    make: Callable[[Callable[[str], None]], C]
    open_timeout: float
    on_state: Callable[[ServerState], None]
    on_change: Callable[[Change], None]
    uris: Callable[[], Iterable[str]] = tuple
    state: ServerState = field(init=False)
    tried: trio.Event = field(init=False, default_factory=trio.Event)
    _moved: trio.Event = field(init=False, default_factory=trio.Event)
    _lost: trio.Event = field(init=False, default_factory=trio.Event)
    _until_lost: tuple[trio.CancelScope, ...] = field(init=False, default=())
    _client: C | None = field(init=False, default=None)
    _connected_at: float = field(init=False, default=-math.inf)
    _failures: int = field(init=False, default=0)
    """Failures in a row; a connection ends the row only when it has proved stable."""
    _unused: C | None = field(init=False)

    def __post_init__(self) -> None:
        self.state = ServerState(self.name, ServerStatus.CONNECTING)
        # Made here, for its checks: a wrong option is an error before anything is started.
        self._unused = self.make(self._on_lost)

    @property
    def current(self) -> C | None:
        """The client that was opened last, which may have lost its connection; None before the first one."""
        return self._client

    @property
    def connected(self) -> C | None:
        """The client, if the server is connected."""
        return self._client if self.state.status is ServerStatus.CONNECTED else None

    async def client(self) -> C:
        """Return the client, after waiting while the server is being connected to.

        Raises:
            ServerUnavailable: it cannot be reached, or the connection was closed.
        """
        while self.state.status is ServerStatus.CONNECTING:
            await self._moved.wait()
        if self.state.status is not ServerStatus.CONNECTED:
            raise self.unavailable()
        assert self._client is not None
        return self._client

    async def ask(self, send: Callable[[C], Awaitable[T]]) -> T:
        """Return the result of what `send` does with the client; do it again if it could not be sent, once the server is back.

        Raises:
            ServerUnavailable: the server cannot be reached.

        What `send` raises is raised with a note that names the server.
        """
        client = await self.client()
        try:
            return await send(client)
        except Unreachable as error:
            # It did nothing, so it may be sent again, also as the call of a tool that must not run twice.
            self._lose_with(client, error)
        except McpError as error:
            if isinstance(error, Disconnected):
                self._lose_with(client, error)
            error.add_note(f"from {self.whose}")
            raise
        client = await self.client()
        try:
            return await send(client)
        except McpError as error:
            error.add_note(f"from {self.whose}")
            raise

    def unavailable(self) -> ServerUnavailable:
        """Return the error of a call to a server that cannot be reached."""
        closed = self.state.status is ServerStatus.CLOSED
        why = "the connection was closed" if closed else str(self.state.error or "it is not connected yet")
        return ServerUnavailable(self.name, why)

    async def moved(self) -> None:
        """Wait for the next state."""
        await self._moved.wait()

    @contextmanager
    def until_lost(self) -> Iterator[None]:
        """Cancel the block when the connection is lost: a subscription that stays open connects again, with other delays."""
        with trio.CancelScope() as scope:
            self._until_lost += (scope,)
            try:
                yield
            finally:
                self._until_lost = tuple([each for each in self._until_lost if each is not scope])

    # the task

    async def keep(self) -> None:
        """Connect, and again whenever the connection is lost, until this is cancelled."""
        try:
            while True:
                client = await self._opened()
                try:
                    await self._follow(client)
                finally:
                    await self._close(client)  # noqa: ASYNC102  closing a client is shielded and bounded
        finally:
            self._move(ServerStatus.CLOSED, self.state.error)
            self.tried.set()

    async def _opened(self) -> C:
        """Return an open client, however many attempts that takes."""
        while True:
            await self._pause()
            client, self._unused = self._unused or self.make(self._on_lost), None
            failure: Exception
            try:
                with trio.move_on_after(self.open_timeout):
                    return await client.open()
                failure = RequestTimeout(f"it did not open a session within {self.open_timeout:g} seconds")
            except Exception as error:  # noqa: BLE001  whatever a transport raises: it is in the state, and tried again
                failure = single_exception(error)
            except BaseException:
                await self._close(client)  # noqa: ASYNC102  as above
                raise
            self._failed(failure)
            await self._close(client)

    async def _follow(self, client: C) -> None:
        """Follow the changes of the server while its client works."""
        self._client = client
        is_reached = True
        while is_reached:
            self._lost = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, client)
                with trio.move_on_after(LISTEN_SECONDS):
                    await self._moved.wait()
                self._connected(client)
                # One that is lost before it is of use may not recover: a server of another era may answer some of its requests.
                is_reached = self.connected is client
                await self._lost.wait()
                nursery.cancel_scope.cancel()
            is_reached = is_reached and await self._is_reached_again(client)

    async def _is_reached_again(self, client: C) -> bool:
        """Ping the server until it answers; return False if another client is needed for it."""
        while True:
            await self._pause()
            if not client.is_open:
                return False
            try:
                await client.ping(timeout=self.open_timeout)
                return True
            except McpError as error:
                self._failed(error)
                # One that answers with an error may speak another era by now.
                if isinstance(error, ProtocolError) or would_fail_again(error):
                    return False

    async def _pause(self) -> None:
        """Wait before the next attempt; not at all before the first, and after a connection that was stable."""
        if self._failures:
            await trio.sleep(BACKOFF.delay(self._failures - 1))

    async def _close(self, client: C) -> None:
        try:
            await client.aclose()
        except Exception as error:
            logger.warning("%s failed: %s", self.whose, error, exc_info=error)

    # changes

    async def _listen(self, client: C) -> None:
        """Pass on the changes that the server announces; when that has begun, or cannot, the server is connected."""
        kinds, uris = announced_lists(filter_of(LISTS), client.server_capabilities), [*self.uris()]
        losses = 0
        while (kinds or uris) and client.is_open:
            begun_at = math.inf
            try:
                changes = client.listen(
                    tools="tools" in kinds, prompts="prompts" in kinds, resources="resources" in kinds, uris=uris
                )
                async with changes:
                    begun_at = trio.current_time()
                    # The lists may have been read before, and have changed since.
                    if self.connected is not None:
                        self._offer_all(kinds)
                    self._connected(client)
                    async for change in changes:
                        self.on_change(change)
            except Disconnected as error:
                self._lose_with(client, error)
            except McpError as error:
                logger.info("%s announces no changes: %s", self.whose, error)
                if begun_at == math.inf and would_fail_again(error):
                    break
            self._connected(client)
            losses = 1 if trio.current_time() - begun_at >= STABLE_AFTER else losses + 1
            await trio.sleep(BACKOFF.delay(losses - 1))
        self._connected(client)

    def _offer_all(self, kinds: list[ChangeKind]) -> None:
        for kind in kinds:
            self.on_change(Change(kind))

    def _offered_kinds(self) -> list[ChangeKind]:
        if self._client is None:
            return []
        capabilities = self._client.server_capabilities
        return [kind for kind in LISTS if declares(capabilities, kind)]

    # states

    def _on_lost(self, why: str) -> None:
        self._lose(Disconnected(why))

    def _lose_with(self, client: Client, why: Exception) -> None:
        # A request of an earlier client says nothing about this one.
        if client is self._client:
            self._lose(why)

    def _lose(self, why: Exception) -> None:
        if self._lost.is_set() or self.state.status is ServerStatus.CLOSED:
            return
        # A server that is lost again soon is not stable: the delays go on growing.
        is_stable = self.connected is not None and trio.current_time() - self._connected_at >= STABLE_AFTER
        self._failures = 0 if is_stable else self._failures + 1
        self._move(self._while_lost(), why)
        self._lost.set()
        for scope in self._until_lost:
            scope.cancel()

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        logger.info("%s is not connected: %s", self.whose, error)
        # At the start one attempt is enough: most servers that fail it were never there.
        self._move(ServerStatus.UNAVAILABLE if self._client is None else self._while_lost(), error)
        self.tried.set()

    def _while_lost(self) -> ServerStatus:
        return ServerStatus.CONNECTING if self._failures < ATTEMPTS else ServerStatus.UNAVAILABLE

    def _connected(self, client: C) -> None:
        if self._lost.is_set() or self.connected is not None:
            return
        if not client.is_open:
            self._lose(Disconnected("the connection ended"))
            return
        self._connected_at = trio.current_time()
        self._move(ServerStatus.CONNECTED)
        self.tried.set()

    def _move(self, status: ServerStatus, error: Exception | None = None) -> None:
        before = self.state.status
        failures = 0 if status is ServerStatus.CONNECTED else self._failures
        if status is ServerStatus.UNAVAILABLE and before is not status:
            # The place is of interest if the failure is neither an answer of the server nor an error of the system.
            trace = None if isinstance(error, McpError | OSError) else error
            logger.warning("%s is unavailable, and attempts go on: %s", self.whose, error, exc_info=trace)
        self.state = ServerState(self.name, status, failures, error and _kept(error))
        moved, self._moved = self._moved, trio.Event()
        moved.set()
        self.on_state(self.state)
        # Its lists come and go with it, and may have changed while it was away. Before the first attempt nothing was listed.
        if status is not before and status in REFRESH_LISTS_ON and self.tried.is_set():
            self._offer_all(self._offered_kinds())


def _kept(error: Exception) -> Exception:
    """Return an error without what it refers to, so that it can be kept."""
    if isinstance(error, McpError):
        return without_traceback(error)
    # Only this task has an error of a transport, so it may be changed. Some classes cannot be copied.
    error.__context__ = None
    return error.with_traceback(None)
