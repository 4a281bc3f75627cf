"""Subscribing to changes at a group of servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import trio

from ..backoff import Backoff
from ..errors import Disconnected, McpError, ServerUnavailable
from ..logs import peer_logger
from ..session.changes import Change, filter_of, lists_in
from .changes import Changes, Listeners
from .group_member import Connection
from .requester import would_fail_again
from .timeouts import UNSUBSCRIBE_TIMEOUT

logger = peer_logger("trio_mcp.client")

BACKOFF: Final = Backoff(first=0.5, longest=30.0)

FindResource = Callable[[str], tuple[Connection, str]]
"""Returns the server of a resource of the group, and its URI there; raises `LookupError`."""


@dataclass(slots=True, eq=False)
class ResourceListener:
    """A subscriber to the resources of one server, in whichever connection.

    Args:
        uris: the URIs in the group, by the server's own.
        on_honoured: called with the server's own URIs that it announces.
    """

    changes: Changes
    connection: Connection
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
                logger.info("%s announces no changes of resources: %s", self.connection.member.name, error)
                if would_fail_again(error):
                    self.on_honoured(self, set())
                    return
            self._losses += 1
            self.started.set()
            await trio.sleep(BACKOFF.delay(self._losses - 1))

    async def _listen(self) -> None:
        client, space = await self.connection.client(), self.connection.member.space
        async with client.listen(uris=[*self.uris]) as changes:
            honoured = {uri for uri in changes.honoured.resource_subscriptions or () if uri in self.uris}
            self.on_honoured(self, honoured)
            # What has changed between two connections nobody has announced.
            if self.started.is_set():
                for uri in honoured:
                    self.changes.offer(Change("updated", self.uris[uri]))
            self._losses = 0
            self.started.set()
            async for change in changes:
                if change.uri is not None:
                    self.changes.offer(Change(change.kind, space.uri(change.uri)))


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
        uris: dict[Connection, dict[str, str]] = {}
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
