"""Subscribers, and the change notifications they get: lists that changed, resources that were updated.

A change is announced from any thread, and delivered in Trio's own time; if it is announced several times before that, it is
delivered once. Every subscriber has a set of changes not sent to it yet, never a queue of them: a slow one costs no more
than twice what it may subscribe to, and misses nothing, since each of these messages only says "look again".

In the legacy era the subscriber is the session, which sends `resources/subscribe` and is notified of all lists. In the modern era
each `subscriptions/listen` is one, and an actor like any call (M-SUB-1s to M-SUB-4s).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias

import trio

from .. import types
from ..base.named_tuples import NamedTuple
from ..base.shared_limits import SUBSCRIBED_CHARACTERS, SUBSCRIPTIONS
from ..errors import LimitExceeded, RemoteProtocolError
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.uri.uris import ancestor_uris, check_uri, normal_uri
from ..runtime.quota import Quota
from ..types import JsonObject, Model, NotificationParams, ServerCapabilities, declares

if TYPE_CHECKING:
    from ..types import SubscriptionFilter

# Changes of what a server offers: the notifications that announce them, and the filters that select them.
#
# Both ends use them: a server announces a change, and a client reports it to its program.

ChangeKind: TypeAlias = Literal["tools", "prompts", "resources", "updated", "task"]
"""What changed: a list, the content of a resource (`"updated"`), or a task."""

LISTS: Final[tuple[ChangeKind, ...]] = ("tools", "prompts", "resources")

METHODS: Final[Mapping[ChangeKind, str]] = {
    **{kind: f"notifications/{kind}/list_changed" for kind in LISTS},
    "updated": "notifications/resources/updated",
    "task": "notifications/tasks",
}
KINDS: Final[Mapping[str, ChangeKind]] = {method: kind for kind, method in METHODS.items()}


class Change(NamedTuple):
    """A list or a resource of the server has changed.

    Attributes:
        kind: "tools", "prompts" or "resources": that list has changed; "updated": the content of a resource has.
        uri: for "updated", the resource, which may be a part of the one that was subscribed to; for "task", its id; else None.
    """

    kind: ChangeKind
    uri: str | None = None

    @property
    def method(self) -> str:
        """The method of the notification that announces it."""
        return METHODS[self.kind]

    def params(self, meta: JsonObject | None = None) -> NotificationParams:
        """Return the params of that notification."""
        if self.uri is None:
            return NotificationParams(meta=meta)
        return types.ResourceUpdatedNotificationParams(uri=self.uri, meta=meta)


TOOLS: Final = Change("tools")
PROMPTS: Final = Change("prompts")
RESOURCES: Final = Change("resources")


def change_of(method: str, params: Model) -> Change | None:
    """Return the change that a notification announces, or None if it is about something else."""
    kind = KINDS.get(method)
    uri = params.uri if isinstance(params, types.ResourceUpdatedNotificationParams) else None
    return None if kind is None else Change(kind, uri)


def lists_in(wanted: SubscriptionFilter) -> list[ChangeKind]:
    """Return the lists whose changes a filter lets through."""
    return [kind for kind in LISTS if getattr(wanted, f"{kind}_list_changed")]


def announced_lists(wanted: SubscriptionFilter, offered: ServerCapabilities) -> list[ChangeKind]:
    """Return the lists of a filter whose changes a server announces, by its capabilities."""
    return [kind for kind in lists_in(wanted) if declares(offered, f"{kind}.listChanged")]


def filter_of(
    lists: Collection[ChangeKind], uris: Collection[str] = (), task_ids: Collection[str] = ()
) -> SubscriptionFilter:
    """Return a filter that lets through changes of these lists, of the resources at these URIs, and of these tasks."""
    # None and not False for what is not wanted: the member is then absent, as in the specification's examples.
    return types.SubscriptionFilter(
        tools_list_changed="tools" in lists or None,
        prompts_list_changed="prompts" in lists or None,
        resources_list_changed="resources" in lists or None,
        resource_subscriptions=list(uris) or None,
        task_ids=list(task_ids) or None,
    )


def changes_matching(wanted: SubscriptionFilter) -> list[Change]:
    """Return one change of each kind that a filter lets through."""
    changes = [Change(kind) for kind in lists_in(wanted)]
    return changes + [Change("updated", uri) for uri in wanted.resource_subscriptions or ()]


MAX_CHARACTERS = 256 * 1024
"""Characters of all URIs that one subscriber subscribes to."""


class Subscriber:
    """One subscriber to some changes.

    Args:
        lists: the lists whose changes are wanted.
        limit: resources that it may subscribe to.
        on_change: called when there is something to take.
        caller: whose it is, for the limits that callers share; see `Account`.

    Attributes:
        task_ids: the tasks whose news it gets; set before it is added.
        sees: returns whether a resource exists for it; a subscription may be to what others are parts of.
        pending: the changes that were not taken yet, each once.
        is_waiting: a task waits until the reader is ready, and will take the changes then.
    """

    __slots__ = (
        "_characters",
        "caller",
        "is_waiting",
        "limit",
        "lists",
        "on_change",
        "pending",
        "sees",
        "task_ids",
        "uris",
    )

    def __init__(
        self,
        lists: Collection[Change],
        limit: int,
        on_change: Callable[[], object],
        caller: Hashable | None = None,
    ) -> None:
        self.lists = lists
        self.limit = limit
        self.on_change = on_change
        self.caller = caller
        self.uris: dict[str, None] = {}
        self.task_ids: tuple[str, ...] = ()
        self.sees: Callable[[str], bool] = lambda _uri: True
        self.pending: dict[Change, None] = {}
        self.is_waiting = False
        self._characters = 0

    def subscribe(self, uri: str) -> None:
        """Subscribe to a resource; once the subscriber was added, only through `Subscriptions.subscribe`.

        Raises:
            RemoteProtocolError: -32602, that is not a URI; or it has too many subscriptions already, or their URIs are too long.
        """
        check_uri(uri)
        if uri in self.uris:
            return
        if len(self.uris) >= self.limit:
            why = f"there are subscriptions to {self.limit} resources already, which is the limit"
            raise RemoteProtocolError(why, code=INVALID_PARAMS)
        if self._characters + len(uri) > MAX_CHARACTERS:
            why = f"the URIs of all subscriptions may have {MAX_CHARACTERS} characters in total, which is the limit"
            raise RemoteProtocolError(why, code=INVALID_PARAMS)
        self._characters += len(uri)
        self.uris[uri] = None

    def unsubscribe(self, uri: str) -> None:
        """End the subscription to a resource, and drop its pending changes."""
        if uri in self.uris:
            del self.uris[uri]
            self._characters -= len(uri)
            self.pending = {change: None for change in self.pending if self.wants(change)}

    def wants(self, change: Change) -> bool:
        """Return whether the subscriber wants this change: an update of a part counts for the whole resource (L-RES-1s)."""
        return change in self.lists if change.uri is None else bool(self._matching(change))

    def enqueue(self, change: Change) -> None:
        """Add a change. If there are too many, those of parts are replaced by changes of the resources subscribed to."""
        if len(self.pending) >= 2 * self.limit + len(self.lists) + len(self.task_ids) and change not in self.pending:
            self.pending = dict.fromkeys(each for known in (*self.pending, change) for each in self._matching(known))
        else:
            self.pending[change] = None
        self.on_change()

    def _matching(self, change: Change) -> list[Change]:
        """Return the change, as changes of the resources subscribed to."""
        if change.uri is None or change.kind == "task":
            return [change]
        return [Change("updated", uri) for uri in ancestor_uris(change.uri) if uri in self.uris]

    def take(self) -> list[Change]:
        """Return the pending changes in order, and remove them."""
        pending, self.pending = self.pending, {}
        return list(pending)


class Follower(Protocol):
    """What subscribes elsewhere to the resources that have subscribers here."""

    def watch(self, uri: str, caller: Hashable | None, /) -> None:
        """Count one more subscription of a caller. Raises `LimitExceeded` if there may be no more."""
        ...

    def unwatch(self, uri: str, caller: Hashable | None, /) -> None:
        """Count one less of those that `watch` has counted."""
        ...


class Subscriptions:
    """The subscribers of one service. `announce` may be called from any thread, everything else from Trio's.

    Attributes:
        forward: called with each change that is announced here, for the other processes; None without any.
        followers: of the resources that have subscribers; set before there is a subscriber.
    """

    def __init__(self) -> None:
        self.forward: Callable[[Change], None] | None = None
        self._token = trio.lowlevel.current_trio_token()
        self._announced: deque[Change] = deque()
        self._subscribers: dict[Subscriber, None] = {}
        self._by_uri: dict[str, dict[Subscriber, None]] = {}
        self._spellings: dict[str, dict[str, None]] = {}
        """The URIs that are not in their normal form, by it."""
        """The subscribers of each URI, so that an update costs nothing for all others."""
        self._by_task: dict[str, dict[Subscriber, None]] = {}
        self._uris = Quota(SUBSCRIPTIONS)
        self._characters = Quota(SUBSCRIBED_CHARACTERS)
        self.followers: Sequence[Follower] = ()
        self.closed = False
        self._streams = 0
        self._waiting_for_streams = trio.lowlevel.ParkingLot()

    def announce(self, change: Change) -> None:
        """Deliver a change to its subscribers, soon; safe in any thread, also after the end of the service."""
        self._announced.append(change)
        try:
            self._token.run_sync_soon(self._deliver, idempotent=True)
        except trio.RunFinishedError:
            self._announced.clear()

    def announce_task(self, task_id: str) -> None:
        """Deliver the news of a task to its subscribers, at once."""
        change = Change("task", task_id)
        self.deliver(change)
        if self.forward is not None:
            self.forward(change)

    def deliver(self, change: Change) -> None:
        """Deliver a change to its subscribers here, at once."""
        if change.kind == "task":
            for subscriber in self._by_task.get(change.uri or "", ()):
                subscriber.enqueue(change)
            return
        for subscriber, wanted in self._subscribers_of(change):
            # What has changed, and not the folder that was subscribed to.
            if change.uri is None or subscriber.sees(change.uri):
                subscriber.enqueue(wanted)

    def deliver_all(self) -> None:
        """Deliver a change of everything that is subscribed to."""
        for change in (TOOLS, PROMPTS, RESOURCES):
            self.deliver(change)
        for uri in list(self._by_uri):
            self.deliver(Change("updated", uri))
        for task_id in list(self._by_task):
            self.deliver(Change("task", task_id))

    def add(self, subscriber: Subscriber) -> None:
        """Deliver changes to a subscriber from now on.

        Raises:
            LimitExceeded: all subscribers together would have too many subscriptions, or its caller more than its share; here, or
                at a follower.
        """
        self._check_limits(subscriber, subscriber.uris)
        self._subscribers[subscriber] = None
        for task_id in subscriber.task_ids:
            self._by_task.setdefault(task_id, {})[subscriber] = None
        try:
            for uri in subscriber.uris:
                self._index(subscriber, uri)
        except LimitExceeded:
            self.discard(subscriber)
            raise

    def subscribe(self, subscriber: Subscriber, uri: str) -> None:
        """Subscribe to one more resource, for a subscriber that was added. Raises what `Subscriber.subscribe` and `add` raise."""
        if uri not in subscriber.uris:
            self._check_limits(subscriber, [uri])
            subscriber.subscribe(uri)
            try:
                self._index(subscriber, uri)
            except LimitExceeded:
                subscriber.unsubscribe(uri)
                raise

    def unsubscribe(self, subscriber: Subscriber, uri: str) -> None:
        """End one subscription of a subscriber that was added."""
        subscriber.unsubscribe(uri)
        self._unindex(subscriber, uri)

    def discard(self, subscriber: Subscriber) -> None:
        """Deliver nothing more to a subscriber."""
        if subscriber in self._subscribers:
            del self._subscribers[subscriber]
            for uri in subscriber.uris:
                self._unindex(subscriber, uri)
            for task_id in subscriber.task_ids:
                del self._by_task[task_id][subscriber]
                if not self._by_task[task_id]:
                    del self._by_task[task_id]

    def close(self) -> None:
        """End all streams of changes, with their results: the server shuts down (M-SUB-3s)."""
        self.closed = True
        for subscriber in list(self._subscribers):
            subscriber.on_change()

    @contextmanager
    def open_stream(self, subscriber: Subscriber) -> Generator[None]:
        """Deliver changes to a subscriber that has a stream of changes, while the block runs. Raises what `add` raises."""
        self.add(subscriber)
        self._streams += 1
        try:
            yield
        finally:
            self.discard(subscriber)
            self._streams -= 1
            if not self._streams:
                self._waiting_for_streams.unpark_all()

    async def wait_streams_ended(self) -> None:
        """Wait until no such stream is left."""
        while self._streams:
            await self._waiting_for_streams.park()

    def __len__(self) -> int:
        return len(self._subscribers)

    def __repr__(self) -> str:
        return f"<Subscriptions subscribers={len(self)} uris={len(self._by_uri)}>"

    def _check_limits(self, subscriber: Subscriber, uris: Collection[str]) -> None:
        self._uris.check(subscriber.caller, len(uris))
        self._characters.check(subscriber.caller, sum(map(len, uris)))

    def _follow(self, uri: str, caller: Hashable | None) -> None:
        for number, each in enumerate(self.followers):
            try:
                each.watch(uri, caller)
            except LimitExceeded:
                for earlier in self.followers[:number]:
                    earlier.unwatch(uri, caller)
                raise

    def _index(self, subscriber: Subscriber, uri: str) -> None:
        self._follow(uri, subscriber.caller)
        if (normal := normal_uri(uri)) != uri:
            self._spellings.setdefault(normal, {})[uri] = None
        self._by_uri.setdefault(uri, {})[subscriber] = None
        self._uris.add(subscriber.caller)
        self._characters.add(subscriber.caller, len(uri))

    def _unindex(self, subscriber: Subscriber, uri: str) -> None:
        subscribers = self._by_uri.get(uri, {})
        if subscriber not in subscribers:
            return
        del subscribers[subscriber]
        for each in self.followers:
            each.unwatch(uri, subscriber.caller)
        self._uris.give_back(subscriber.caller)
        self._characters.give_back(subscriber.caller, len(uri))
        if not subscribers:
            del self._by_uri[uri]
            if (spelled := self._spellings.get(normal_uri(uri))) is not None:
                spelled.pop(uri, None)
                if not spelled:
                    del self._spellings[normal_uri(uri)]

    def _deliver(self) -> None:
        changes: dict[Change, None] = {}
        while self._announced:
            changes[self._announced.popleft()] = None
        for change in changes:
            self.deliver(change)
            if self.forward is not None:
                self.forward(change)

    def _subscribers_of(self, change: Change) -> list[tuple[Subscriber, Change]]:
        """Return the subscribers of a change, each with the change as it subscribed to it."""
        if change.uri is None:
            return [(subscriber, change) for subscriber in self._subscribers if change in subscriber.lists]
        found: dict[Subscriber, Change] = {}
        # Who has subscribed to another spelling gets that one, since a client may compare the two.
        for uri in ancestor_uris(normal := normal_uri(change.uri)):
            for spelled in (
                (uri, *self._spellings.get(uri, ())) if normal != change.uri else self._spellings.get(uri, ())
            ):
                found |= dict.fromkeys(self._by_uri.get(spelled, ()), Change("updated", spelled))
        for uri in ancestor_uris(change.uri):
            found |= dict.fromkeys(self._by_uri.get(uri, ()), change)
        return list(found.items())
