"""Subscribing to changes at a group of servers."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import trio

from ..base.backoff import Backoff
from ..base.groups import first_leaf, without
from ..base.logs import peer_logger
from ..client.changes import Changes, Listeners
from ..client.link import split_contained
from ..client.requester import UNSUBSCRIBE_TIMEOUT, would_fail_again
from ..errors import Disconnected, McpError, ServerUnavailable
from ..session.event_loop import home_held
from ..session.subscriptions import Change, filter_of, lists_in
from .member import Member

logger = peer_logger("trio_mcp.client")

BACKOFF: Final = Backoff(first=0.5, longest=30.0)

FindResource = Callable[[str], tuple[Member, str]]
"""Returns the server of a resource of the group, and its URI there; raises `LookupError`."""


@dataclass(slots=True, eq=False)
class ResourceListener:
    """A subscriber to the resources of one server, in whichever connection.

    Args:
        uris: the URIs in the group, by the server's own.
        on_honoured: called with the server's own URIs that it announces.
    """

    changes: Changes
    connection: Member
    uris: Mapping[str, str]
    on_honoured: Callable[[ResourceListener, set[str]], None]
    started: trio.Event = field(default_factory=trio.Event)
    """Set when the server has agreed, or cannot be reached, or refuses."""
    _losses: int = 0

    async def run(self) -> None:
        """Subscribe, and again in each further connection."""
        try:
            await self._keep_listening()
        finally:
            self.started.set()

    async def _keep_listening(self) -> None:
        while True:
            try:
                await self._listen()
            except ServerUnavailable:
                self.started.set()
                await self.connection.moved()
                continue
            except McpError as error:
                logger.info("%s announces no changes of resources: %s", self.connection.whose, error)
                if would_fail_again(error):
                    self.on_honoured(self, set())
                    return
            self._losses += 1
            self.started.set()
            await trio.sleep(BACKOFF.delay(self._losses - 1))

    async def _listen(self) -> None:
        client, space = await self.connection.client(), self.connection.space
        with self.connection.until_lost():
            async with client.listen(uris=[*self.uris]) as changes:
                honoured = {uri for uri in changes.honoured.resource_subscriptions or () if uri in self.uris}
                self.on_honoured(self, honoured)
                # Changes between two connections were not announced, so each resource may have changed.
                if self.started.is_set():
                    for uri in honoured:
                        self.changes.offer(Change("updated", self.uris[uri]))
                self._losses = 0
                self.started.set()
                async for change in changes:
                    if change.uri is not None:
                        self.changes.offer(Change(change.kind, space.outer_uri(change.uri)))


@dataclass(slots=True, eq=False)
class _Subscriber:
    listeners: list[ResourceListener]
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    honoured: dict[ResourceListener, set[str]] = field(default_factory=dict[ResourceListener, set[str]])


class GroupListeners(Listeners):
    """The subscribers of a group. Changes of lists reach all of them; each has its own subscriptions to resources.

    Args:
        find: finds the server of a resource.
        find_nursery: returns the nursery that owns the tasks; raises `Disconnected` if the group is not open.
    """

    def __init__(self, find: FindResource, find_nursery: Callable[[], trio.Nursery]) -> None:
        self._find = find
        self._find_nursery = find_nursery
        self._open: dict[Changes, _Subscriber] = {}

    async def begin(self, changes: Changes, /) -> None:
        nursery = self._find_nursery()
        uris: dict[Member, dict[str, str]] = {}
        for uri in changes.wanted.resource_subscriptions or ():
            connection, own = self._find(uri)
            uris.setdefault(connection, {})[own] = uri
        subscriber = _Subscriber(
            [ResourceListener(changes, connection, own, self._honoured) for connection, own in uris.items()]
        )
        subscriber.honoured = {listener: {*listener.uris} for listener in subscriber.listeners}
        self._open[changes] = subscriber
        self._update(changes)
        nursery.start_soon(self._run, subscriber)
        try:
            for listener in subscriber.listeners:
                await listener.started.wait()
            await trio.lowlevel.checkpoint()
        except BaseException:
            await self.finish(changes)  # noqa: ASYNC102  it is shielded and bounded itself
            raise

    async def finish(self, changes: Changes, /) -> None:
        subscriber = self._open.pop(changes, None)
        if subscriber is None:
            return
        subscriber.scope.cancel()
        with trio.move_on_after(2 * UNSUBSCRIBE_TIMEOUT, shield=True):
            await subscriber.ended.wait()

    def dispatch_change(self, change: Change) -> None:
        for changes in self._open:
            changes.offer(change)

    def end(self, why: Disconnected) -> None:
        for changes in self._open:
            changes.end(why)

    async def _run(self, subscriber: _Subscriber) -> None:
        try:
            with subscriber.scope:
                async with trio.open_nursery() as nursery:
                    for listener in subscriber.listeners:
                        nursery.start_soon(listener.run)
        finally:
            subscriber.ended.set()

    def _honoured(self, listener: ResourceListener, own: set[str]) -> None:
        subscriber = self._open.get(listener.changes)
        if subscriber is not None:
            subscriber.honoured[listener] = own
            self._update(listener.changes)

    def _update(self, changes: Changes) -> None:
        honoured = self._open[changes].honoured
        uris = [listener.uris[own] for listener, known in honoured.items() for own in listener.uris if own in known]
        changes.honoured_filter = filter_of(lists_in(changes.wanted), uris)


# The tasks of a group: one for each server, below a system task that `open` starts and `aclose` ends.

CLOSE_TIMEOUT: Final = 20.0
"""Seconds that closing may take: each client has fifteen, at the same time as the others."""

NOT_OPEN: Final = "the group is not open: call it inside `async with ClientGroup(...) as group:`"


class _Phase(Enum):
    NEW = "new"
    OPEN = "open"
    CLOSED = "closed"


class GroupTasks:
    """Owns the tasks of a group.

    Args:
        connections: to its servers.

    Attributes:
        opened_in: the Trio run in which it is open.
    """

    def __init__(self, connections: Collection[Member]) -> None:
        self._connections = connections
        self._phase = _Phase.NEW
        self._scope = trio.CancelScope()
        self.opened_in: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._done = trio.Event()
        self._failure: BaseException | None = None

    @property
    def nursery(self) -> trio.Nursery:
        """Owns what lives as long as the group.

        Raises:
            Disconnected: the group is not open.
        """
        if self._nursery is None or self._phase is not _Phase.OPEN:
            raise Disconnected(NOT_OPEN)
        return self._nursery

    async def open(self) -> None:
        """Start the tasks, and wait until each server was tried once. A cancel closes the group.

        Raises:
            RuntimeError: it was opened before.
            Disconnected: it was closed meanwhile.
        """
        if self._phase is not _Phase.NEW:
            raise RuntimeError("a group is opened once: make another one")
        self._phase = _Phase.OPEN
        self.opened_in = trio.lowlevel.current_trio_token()
        # With the caller's context, so that callbacks of the program see its context variables.
        trio.lowlevel.spawn_system_task(self._main, name="a group of clients", context=contextvars.copy_context())
        try:
            await trio.lowlevel.checkpoint()
            for connection in self._connections:
                await connection.tried.wait()
        # `__aexit__` does not run if `__aenter__` raises, so nothing else would close the group.
        except BaseException:
            await self.aclose()  # noqa: ASYNC102  it is shielded and bounded itself
            raise
        if self._phase is not _Phase.OPEN:
            raise Disconnected("the group was closed while it opened")

    async def aclose(self) -> None:
        """Close all clients, from any task. Idempotent; bounded, also when cancelled.

        Raises:
            BaseException: a `SystemExit` of a handler, once.
        """
        was_open = self._phase is _Phase.OPEN
        self._phase = _Phase.CLOSED
        self._scope.cancel()
        if was_open:
            with trio.move_on_after(CLOSE_TIMEOUT, shield=True):
                await self._done.wait()
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            # Its traceback refers to this frame: a cycle, which would keep the error's frames alive.
            del failure
        await trio.lowlevel.checkpoint()

    def __repr__(self) -> str:
        return self._phase.value

    async def _main(self) -> None:
        """Run everything else, and let only a cancel out: what leaves a system task ends Trio's loop."""
        try:
            with home_held(), self._scope:
                async with trio.open_nursery() as nursery:
                    self._nursery = nursery
                    for connection in self._connections:
                        nursery.start_soon(connection.keep)
                    await trio.sleep_forever()
        except BaseException as error:  # noqa: BLE001, ASYNC103  it is raised by `aclose`
            self._contain(error)
        finally:
            self.opened_in = None
            self._done.set()

    def _contain(self, error: BaseException) -> None:
        cancelled, rest = split_contained(error)
        if rest is not None:
            # A handler has called `sys.exit()`, say; or this package has a bug, which must not be silent.
            self._failure = first_leaf(without(rest, Exception) or rest)
        if cancelled is not None:
            raise cancelled
