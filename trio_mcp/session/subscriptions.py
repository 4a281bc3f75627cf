"""Subscribers, and the change notifications they get: lists that changed, resources that were updated.

A change is announced once, from any thread, and delivered in Trio's own time; what is announced several times before that is
delivered once. Every subscriber has a set of changes not sent to it yet, never a queue of them: a slow one costs no more
than twice what it may subscribe to, and misses nothing, since each of these messages only says "look again".

In the legacy era the subscriber is the session, which sends `resources/subscribe` and is notified of all lists. In the modern era
each `subscriptions/listen` is one, and an actor like any call (M-SUB-1s to M-SUB-4s).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from typing import Final, NamedTuple

import trio

from ..errors import LimitExceeded
from ..protocol.uri.parts import ancestor_uris
from ..protocol.uri.uris import check_uri
from ..types import JsonObject, NotificationParams, ResourceUpdatedNotificationParams


class Change(NamedTuple):
    """One thing to tell: the notification's method, and the URI when it is about one resource."""

    method: str
    uri: str | None = None

    def params(self, meta: JsonObject | None = None) -> NotificationParams:
        """The params of its notification."""
        if self.uri is None:
            return NotificationParams(meta=meta)
        return ResourceUpdatedNotificationParams(uri=self.uri, meta=meta)


TOOLS: Final = Change("notifications/tools/list_changed")
PROMPTS: Final = Change("notifications/prompts/list_changed")
RESOURCES: Final = Change("notifications/resources/list_changed")
UPDATED: Final = "notifications/resources/updated"


def updated(uri: str) -> Change:
    """The resource, or something below it, has changed."""
    return Change(UPDATED, uri)


MAX_WATCHED = 256 * 1024
"""Characters of all URIs that one subscriber watches."""

MAX_IN_ALL = 100_000
"""Resources that all subscribers of a service watch together; one costs about half a kilobyte."""

MAX_CHARACTERS_IN_ALL = 64 * 1024 * 1024
"""Characters of the URIs of them."""


class Subscriber:
    """One subscriber to some changes.

    Args:
        lists: the lists whose changes are wanted.
        limit: resources that may be watched at once.
        on_change: called when there is something to take.
    """

    __slots__ = ("_limit", "_pending", "_watched", "held", "lists", "on_change", "uris")

    def __init__(self, lists: Iterable[Change], limit: int, on_change: Callable[[], None]) -> None:
        self.lists = frozenset(lists)
        self.uris: dict[str, None] = {}
        self.on_change = on_change
        self.held = False
        """Somebody waits for the reader to be ready, and will take what there is then."""
        self._limit = limit
        self._watched = 0
        self._pending: dict[Change, None] = {}

    def watch(self, uri: str) -> None:
        """Hear of a resource; what is added already is added through `Subscriptions.watch`.

        Raises:
            RemoteProtocolError: -32602, that is no URI.
            LimitExceeded: too many are watched already, or too long ones.
        """
        check_uri(uri)
        if uri in self.uris:
            return
        if len(self.uris) >= self._limit:
            raise LimitExceeded(f"{self._limit} resources are watched here already, which is the limit")
        if self._watched + len(uri) > MAX_WATCHED:
            raise LimitExceeded(f"the URIs that are watched here have at most {MAX_WATCHED} characters in all")
        self._watched += len(uri)
        self.uris[uri] = None

    def forget(self, uri: str) -> None:
        """Hear no more of a resource, nor of what is still to tell of it."""
        if uri in self.uris:
            del self.uris[uri]
            self._watched -= len(uri)
            self._pending = {change: None for change in self._pending if self.wants(change)}

    def wants(self, change: Change) -> bool:
        """Whether the subscriber wants this change: an update also counts for the resource that it is a part of (L-RES-1s)."""
        if change.uri is None:
            return change in self.lists
        return any(whole in self.uris for whole in ancestor_uris(change.uri))

    def tell(self, change: Change) -> None:
        """Keep it until it is taken. Where there are too many parts to keep, what they are parts of is kept instead."""
        if len(self._pending) >= 2 * self._limit + len(self.lists) and change not in self._pending:
            self._pending = dict.fromkeys(each for known in (*self._pending, change) for each in self._asked_for(known))
        else:
            self._pending[change] = None
        self.on_change()

    def _asked_for(self, change: Change) -> list[Change]:
        """The change, as changes of nothing but what is watched."""
        if change.uri is None:
            return [change]
        return [updated(uri) for uri in ancestor_uris(change.uri) if uri in self.uris]

    def take(self) -> list[Change]:
        """What there is to tell, in order."""
        pending, self._pending = self._pending, {}
        return list(pending)


class Subscriptions:
    """The subscribers of one service. `announce` may be called from any thread, everything else from Trio's."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._announced: deque[Change] = deque()
        self._subscribers: dict[Subscriber, None] = {}
        self._watchers: dict[str, dict[Subscriber, None]] = {}
        """Who watches each URI, so that an update costs nothing for those who do not."""
        self._count = 0
        self._characters = 0
        self._closed = False
        self._streams = 0
        self._streams_ended = trio.Event()

    def announce(self, change: Change) -> None:
        """Tell of a change, soon; safe in any thread, also after the end of the service."""
        self._announced.append(change)
        try:
            self._token.run_sync_soon(self._deliver, idempotent=True)
        except trio.RunFinishedError:
            self._announced.clear()

    def add(self, subscriber: Subscriber) -> None:
        """Tell him of changes from now on.

        Raises:
            LimitExceeded: all together would watch too many resources.
        """
        self._check_room(subscriber.uris)
        self._subscribers[subscriber] = None
        for uri in subscriber.uris:
            self._index(subscriber, uri)

    def watch(self, subscriber: Subscriber, uri: str) -> None:
        """One more resource for someone who was added. Raises as `Subscriber.watch` and `add` do."""
        if uri not in subscriber.uris:
            self._check_room([uri])
            subscriber.watch(uri)
            self._index(subscriber, uri)

    def forget(self, subscriber: Subscriber, uri: str) -> None:
        """One resource less for someone who was added."""
        subscriber.forget(uri)
        self._unindex(subscriber, uri)

    def discard(self, subscriber: Subscriber) -> None:
        """Tell him nothing more."""
        if subscriber in self._subscribers:
            del self._subscribers[subscriber]
            for uri in subscriber.uris:
                self._unindex(subscriber, uri)

    def close(self) -> None:
        """The server is going away: streams end in order, with their results (M-SUB-3s)."""
        self._closed = True
        for subscriber in list(self._subscribers):
            subscriber.on_change()

    @contextmanager
    def streaming(self, subscriber: Subscriber) -> Generator[None]:
        """Tell someone of changes who has a stream for nothing else. Raises as `add` does."""
        self.add(subscriber)
        self._streams += 1
        try:
            yield
        finally:
            self.discard(subscriber)
            self._streams -= 1
            self._streams_ended.set()

    async def streams_ended(self) -> None:
        """Wait until no such stream is left."""
        while self._streams:
            if self._streams_ended.is_set():
                self._streams_ended = trio.Event()
            await self._streams_ended.wait()

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        return len(self._subscribers)

    def __repr__(self) -> str:
        return f"<Subscriptions subscribers={len(self)} watched={len(self._watchers)}>"

    def _check_room(self, uris: Collection[str]) -> None:
        if self._count + len(uris) > MAX_IN_ALL or self._characters + sum(map(len, uris)) > MAX_CHARACTERS_IN_ALL:
            raise LimitExceeded(
                f"as many resources are watched as this server can hold ({MAX_IN_ALL}, with {MAX_CHARACTERS_IN_ALL} characters)"
            )

    def _index(self, subscriber: Subscriber, uri: str) -> None:
        self._watchers.setdefault(uri, {})[subscriber] = None
        self._count += 1
        self._characters += len(uri)

    def _unindex(self, subscriber: Subscriber, uri: str) -> None:
        watchers = self._watchers.get(uri, {})
        if subscriber not in watchers:
            return
        del watchers[subscriber]
        self._count -= 1
        self._characters -= len(uri)
        if not watchers:
            del self._watchers[uri]

    def _deliver(self) -> None:
        changes: dict[Change, None] = {}
        while self._announced:
            changes[self._announced.popleft()] = None
        for change in changes:
            for subscriber in self._interested(change):
                subscriber.tell(change)

    def _interested(self, change: Change) -> list[Subscriber]:
        if change.uri is None:
            return [subscriber for subscriber in self._subscribers if change in subscriber.lists]
        found: dict[Subscriber, None] = {}
        for whole in ancestor_uris(change.uri):
            found |= self._watchers.get(whole, {})
        return list(found)
