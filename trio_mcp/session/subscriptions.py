"""Who is told of changes, and how: lists that changed, resources that were updated.

A change is announced once, from any thread, and delivered in Trio's own time; what is announced several times before that is
delivered once. Every subscriber has a set of changes he has not been sent yet, never a queue of them: a slow one costs no more
than what he asked for, and misses nothing, since each of these messages only says "look again".

In the handshake era the subscriber is the session, which asks by `resources/subscribe` and hears of all lists. In the modern era
each `subscriptions/listen` is one, and an actor like any call (M-SUB-1s to M-SUB-4s).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import trio

from ..errors import LimitExceeded
from ..protocol.uris import check_uri
from ..types import JsonObject, NotificationParams, ResourceUpdatedNotificationParams

__all__ = ["PROMPTS", "RESOURCES", "TOOLS", "Change", "Subscriber", "Subscriptions", "updated"]


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


class Subscriber:
    """Someone who wants to hear of some changes.

    Args:
        lists: the lists whose changes are wanted.
        limit: resources that may be watched at once.
        on_change: called when there is something to take.
    """

    __slots__ = ("_limit", "_pending", "held", "lists", "on_change", "uris")

    def __init__(self, lists: Iterable[Change], limit: int, on_change: Callable[[], None]) -> None:
        self.lists = frozenset(lists)
        self.uris: dict[str, None] = {}
        self.on_change = on_change
        self.held = False
        """Somebody waits for the reader to be ready, and will take what there is then."""
        self._limit = limit
        self._pending: dict[Change, None] = {}

    def watch(self, uri: str) -> None:
        """Hear of a resource from now on.

        Raises:
            RemoteProtocolError: -32602, that is no URI.
            LimitExceeded: too many are watched already.
        """
        check_uri(uri)
        if uri not in self.uris and len(self.uris) >= self._limit:
            raise LimitExceeded(f"{self._limit} resources are watched here already, which is the limit")
        self.uris[uri] = None

    def forget(self, uri: str) -> None:
        """Hear no more of a resource, nor of what is still to tell of it."""
        self.uris.pop(uri, None)
        for change in [change for change in self._pending if not self.wants(change)]:
            del self._pending[change]

    def wants(self, change: Change) -> bool:
        """Whether the change is one to be told of: an update also counts for what it is a part of (L-RES-1s)."""
        if change.uri is None:
            return change in self.lists
        return change.uri in self.uris or any(is_part(change.uri, whole) for whole in self.uris)

    def tell(self, change: Change) -> None:
        self._pending[change] = None
        self.on_change()

    def take(self) -> list[Change]:
        """What there is to tell, in order."""
        pending, self._pending = self._pending, {}
        return list(pending)


def is_part(uri: str, whole: str) -> bool:
    """Whether the one URI is below the other: `file:///a/b` is a part of `file:///a/` and of `file:///a`."""
    return uri.startswith(whole) and (whole.endswith("/") or uri.startswith("/", len(whole)))


class Subscriptions:
    """The subscribers of one service. `announce` may be called from any thread, everything else from Trio's."""

    def __init__(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._announced: deque[Change] = deque()
        self._subscribers: dict[Subscriber, None] = {}
        self._closed = False

    def announce(self, change: Change) -> None:
        """Tell of a change, soon; safe in any thread, also after the end of the service."""
        self._announced.append(change)
        try:
            self._token.run_sync_soon(self._deliver, idempotent=True)
        except trio.RunFinishedError:
            self._announced.clear()

    def add(self, subscriber: Subscriber) -> None:
        self._subscribers[subscriber] = None

    def discard(self, subscriber: Subscriber) -> None:
        self._subscribers.pop(subscriber, None)

    def close(self) -> None:
        """The server is going away: streams end in order, with their results (M-SUB-3s)."""
        self._closed = True
        for subscriber in list(self._subscribers):
            subscriber.on_change()

    @property
    def closed(self) -> bool:
        return self._closed

    def __len__(self) -> int:
        return len(self._subscribers)

    def _deliver(self) -> None:
        changes: dict[Change, None] = {}
        while self._announced:
            changes[self._announced.popleft()] = None
        for change in changes:
            for subscriber in list(self._subscribers):
                if subscriber.wants(change):
                    subscriber.tell(change)
