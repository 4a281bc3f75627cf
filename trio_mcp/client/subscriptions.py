"""Subscribing to changes at a legacy server: everything arrives on the session, which all subscribers share.

The client subscribes to single resources, and the server announces changes of its lists unasked.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import dataclass, field

import trio

from ..base.backoff import RECONNECT_BACKOFF, STABLE_AFTER
from ..base.logs import RepeatedRecords, peer_logger
from ..errors import Disconnected, McpError, PeerError, RemoteProtocolError, RequestTimeout, without_traceback
from ..protocol.codec.unknown import UnknownParams
from ..session import ClientSession
from ..session.subscriptions import Change, announced_lists, change_of, filter_of
from ..types import (
    LoggingMessageNotificationParams,
    Model,
    SubscribeRequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    TaskStatusNotificationParams,
    UnsubscribeRequestParams,
)
from ..types.capabilities import declares
from .changes import Changes, Listeners, OnChange, intersection
from .known_task import TaskNews
from .options import ClientOptions
from .requester import SUBSCRIBE_TIMEOUT, UNSUBSCRIBE_TIMEOUT, Requester, would_fail_again

# No change is lost without a sign of it: after each interruption everything that the server honours counts as changed, as in
# `listen_streams`. The two differ in who retries. There each stream is its own request, and reopens itself. Here the link reopens
# the session once for all subscribers, and then calls `restore`.


logger = peer_logger("trio_mcp.client")


class Subscriptions(Listeners):
    """Subscribers of one session, which share its subscriptions to single resources."""

    def __init__(self, link: Requester, on_change: OnChange) -> None:
        super().__init__(link, on_change)
        self._open: dict[Changes, None] = {}
        self._ended: Disconnected | None = None
        """Why nothing is announced any more in the session that is open now."""
        self._uris: Counter[str] = Counter()
        """Subscribers of each resource."""
        # Requests to subscribe and to unsubscribe must reach the server in the order of the counts above. Over HTTP each is
        # a POST, and two in flight may overtake each other: the server would end up without a subscription that has one
        # subscriber left.
        self._turn = trio.Lock()

    async def begin(self, changes: Changes, /) -> None:
        self._check_announces()
        self._open[changes] = None
        wanted = changes.wanted
        offered = self._link.facts.capabilities
        changes.honoured_filter = filter_of(announced_lists(wanted, offered))
        honoured: list[str] = []
        try:
            for uri in dict.fromkeys(wanted.resource_subscriptions or ()):
                if declares(offered, "resources.subscribe") and await self._try_to_subscribe(uri):
                    honoured.append(uri)
                    # After each URI, so that `finish` knows which to release if the next one fails.
                    update = {"resource_subscriptions": list(honoured)}
                    changes.honoured_filter = changes.honoured_filter.model_copy(update=update)
        # A cancel between two of the URIs: those before are subscribed to, and are released again.
        except BaseException:
            await self.finish(changes)  # noqa: ASYNC102  it is shielded and bounded itself
            raise

    async def finish(self, changes: Changes, /) -> None:
        if changes not in self._open:
            return
        del self._open[changes]
        with trio.move_on_after(UNSUBSCRIBE_TIMEOUT, shield=True):
            await self._release_all(changes.honoured_filter.resource_subscriptions or [])

    async def _try_to_subscribe(self, uri: str) -> bool:
        try:
            await self.subscribe(uri)
        except PeerError as error:
            logger.info("the server does not announce changes of %s: %s", uri, error)
            return False
        return True

    async def subscribe(self, uri: str) -> None:
        """Subscribe to one resource. After a cancel the server may or may not have received the request."""
        self._check_announces()
        async with self._turn:
            # Counted before the request: if the session is lost while it waits, `restore` subscribes to this one too.
            self._uris[uri] += 1
            try:
                await self._link.request("resources/subscribe", SubscribeRequestParams(uri=uri))
            except BaseException:
                self._release_uri(uri)
                raise

    async def unsubscribe(self, uri: str) -> None:
        """Take one subscription back; a request is sent only if it was the last one of this resource."""
        self._release_uri(uri)
        await self._unsubscribe(uri)

    async def _unsubscribe(self, uri: str) -> None:
        async with self._turn:
            # Looked up while holding the lock: another task may have subscribed while this one waited for it.
            if uri not in self._uris:
                await self._link.request("resources/unsubscribe", UnsubscribeRequestParams(uri=uri))

    def _release_uri(self, uri: str) -> None:
        self._uris[uri] -= 1
        if self._uris[uri] <= 0:
            del self._uris[uri]

    async def _release_all(self, uris: list[str]) -> None:
        # All are released before the first request: a session that is reopened meanwhile must not subscribe to them again.
        for uri in uris:
            self._release_uri(uri)
        for uri in uris:
            try:
                await self._unsubscribe(uri)
            except McpError as error:
                logger.debug("%s was not unsubscribed from: %s", uri, error)

    def dispatch_change(self, change: Change) -> None:
        for changes in self._open:
            changes.offer(change)

    @property
    def needs_session(self) -> bool:
        return self._ended is None and bool(self._open or self._uris)

    def begin_session(self) -> None:
        self._ended = None

    async def restore(self, session: ClientSession) -> None:
        with trio.move_on_after(SUBSCRIBE_TIMEOUT) as bound:
            # A copy: a subscriber may come or go during any of these requests. They go to the session directly, since the
            # link's `request` would wait for the very attempt that this is a part of.
            for uri in list(self._uris):
                try:
                    await session.request("resources/subscribe", SubscribeRequestParams(uri=uri))
                # The other subscriptions still work.
                except (PeerError, RemoteProtocolError) as error:
                    session.records.log("the server no longer announces changes of %s: %s", uri, error)
        if bound.cancelled_caught:
            session.records.log("the server took too long to restore the subscriptions to resources")
        for changes in self._open:
            changes.report_missed(self._on_change)

    def end(self, why: Disconnected) -> None:
        self._ended = why
        for changes in self._open:
            changes.end(why)

    def _check_announces(self) -> None:
        if self._ended is not None:
            raise without_traceback(self._ended)


# Subscribing to changes at a modern server: each subscriber has its own stream.
#
# A stream is a `subscriptions/listen` request, which is sent again when its stream is lost.

# No change is lost without a sign of it. A change that happens while no stream is open cannot be seen, so after each interruption
# everything that the server honours counts as changed. A spurious change costs the program one request; a missed one leaves it
# with stale data for good. `session_subscriptions` keeps the same promise.


@dataclass(slots=True, eq=False, repr=False)
class ListenStream:
    """One `subscriptions/listen` request after another, for one subscriber."""

    _link: Requester
    _changes: Changes
    _on_change: OnChange
    started: trio.Event = field(default_factory=trio.Event)
    """Set when the stream is acknowledged for the first time, or has failed before."""
    done: trio.Event = field(default_factory=trio.Event)
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    _acknowledge_scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    _acknowledged_at: float = math.inf
    _losses: int = 0
    """Streams that were lost since the last one that was stable."""

    async def run(self) -> None:
        try:
            with self.scope:
                await self._keep_open()
        except Exception as error:  # noqa: BLE001  the subscriber gets it from its iteration
            self._changes.end(error)
        finally:
            self.started.set()
            self.done.set()

    async def _keep_open(self) -> None:
        while True:
            try:
                await self._open()
                self._changes.end()
                return
            except (Disconnected, PeerError, RequestTimeout, RemoteProtocolError) as error:
                # The first stream's failure is the caller's to handle; a closed connection brings no other stream, and a server
                # that rejects the request, for example since a token has expired, rejects the next one too.
                is_closed = self._link.session.closed_because is not None
                if is_closed or not self.started.is_set() or would_fail_again(error):
                    raise
                logger.info("a stream of changes was lost; reopening it: %s", error)
                self._link.lost(str(error))
            # Measured from the acknowledgement: a server that accepts the connection and drops it after ten seconds without
            # an acknowledgement is not stable. Without one the time is infinite, and the difference negative.
            if trio.current_time() - self._acknowledged_at >= STABLE_AFTER:
                self._losses = 0
            await trio.sleep(RECONNECT_BACKOFF.delay(self._losses))
            self._losses += 1

    async def _open(self) -> None:
        """Open the stream and read it to its end."""
        self._acknowledged_at = math.inf
        params = SubscriptionsListenRequestParams(notifications=self._changes.wanted)
        # The request itself has no timeout: its answer is the end of the stream, which may come after days. Only the
        # acknowledgement has one, and `_acknowledge` lifts it.
        with trio.move_on_after(SUBSCRIBE_TIMEOUT) as self._acknowledge_scope:
            await self._link.request("subscriptions/listen", params, on_notification=self._on_notification)
            return
        raise RequestTimeout(f"the server did not acknowledge the stream within {SUBSCRIBE_TIMEOUT:g} seconds")

    def _on_notification(self, method: str, params: Model) -> None:
        if isinstance(params, SubscriptionsAcknowledgedNotificationParams):
            self._acknowledge(params.notifications)
            return
        change = change_of(method, params)
        if change is not None:
            self._on_change(change)
            self._changes.offer(change)

    def _acknowledge(self, honoured: SubscriptionFilter) -> None:
        # A server acknowledges a stream once. A second acknowledgement must not move the start of the stable time.
        if self._acknowledged_at < math.inf:
            return
        self._acknowledge_scope.deadline = math.inf
        self._acknowledged_at = trio.current_time()
        self._changes.honoured_filter = intersection(self._changes.wanted, honoured)
        # A stream after the first: changes between the two were announced to no one.
        if self.started.is_set():
            self._changes.report_missed(self._on_change)
        self.started.set()


class ListenStreams(Listeners):
    """Subscribers that have a stream each."""

    def __init__(self, link: Requester, on_change: OnChange) -> None:
        super().__init__(link, on_change)
        self._streams: dict[Changes, ListenStream] = {}

    async def begin(self, changes: Changes, /) -> None:
        # The stream runs in a task of the link: `async with client.listen()` must not open a nursery round its body, which
        # would deliver the subscriber's own errors in an exception group.
        stream = ListenStream(self._link, changes, self._on_change)
        self._link.start(stream.run)
        self._streams[changes] = stream
        try:
            await stream.started.wait()
        # Also for a cancel or a Ctrl-C: the stream would otherwise run on, and no `__aexit__` would ever end it.
        except BaseException:
            await self.finish(changes)  # noqa: ASYNC102  it is shielded and bounded itself
            raise
        if changes.failure is not None:
            del self._streams[changes]
            raise without_traceback(changes.failure)

    async def finish(self, changes: Changes, /) -> None:
        stream = self._streams.pop(changes, None)
        if stream is None:
            return
        with trio.move_on_after(UNSUBSCRIBE_TIMEOUT, shield=True):
            stream.scope.cancel()
            await stream.done.wait()

    def end(self, why: Disconnected) -> None:
        for changes in self._streams:
            changes.end(why)


# Dispatching the notifications that belong to no request of the client.


@dataclass(slots=True, eq=False)
class NotificationRouter:
    """Sends each notification on: log messages to `on_log`; changes to the cache, to `on_change` and to the subscribers.

    Attributes:
        listeners: the subscribers, once the session is open.
        tasks: those who follow a task.
    """

    _options: ClientOptions
    listeners: Listeners | None = None
    tasks: TaskNews = field(default_factory=TaskNews)
    _records: RepeatedRecords = field(default_factory=lambda: RepeatedRecords(logger))

    def dispatch(self, method: str, params: Model) -> None:
        """Dispatch a notification that came on the session."""
        if isinstance(params, LoggingMessageNotificationParams):
            if self._options.on_log is not None:
                self._options.on_log(params)
            return
        if isinstance(params, TaskStatusNotificationParams):
            self.tasks.dispatch(params)
            return
        if isinstance(params, UnknownParams):
            if self._options.on_unknown is not None:
                self._options.on_unknown(method, params)
            return
        change = change_of(method, params)
        if change is not None:
            # The cache first: a subscriber that reads the resource again must not find the old content.
            self.dispatch_change(change)
            if self.listeners is not None:
                self.listeners.dispatch_change(change)

    @property
    def needs_session(self) -> bool:
        """Whether a subscriber waits for changes that are announced in a session."""
        return self.listeners is not None and self.listeners.needs_session

    def end_subscriptions(self, why: str) -> None:
        """End every subscription: nothing will be announced in this session any more."""
        if self.listeners is not None:
            self.listeners.end(Disconnected(why))

    def dispatch_change(self, change: Change) -> None:
        """Remove the cached results that a change makes stale, and call `on_change`."""
        cache, on_change = self._options.cache, self._options.on_change
        match change:
            case Change("updated", str(uri)):
                cache.invalidate_resource(uri)
            case Change("resources"):
                cache.invalidate("resources/list", "resources/templates/list")
            case Change(kind):
                cache.invalidate(f"{kind}/list")
        if on_change is None:
            return
        try:
            on_change(change)
        # The session catches errors of callbacks too. This is also called while a session is reopened, where an error would fail
        # the attempt.
        except Exception as error:  # noqa: BLE001  whatever an author's function raises
            self._records.log("a handler of changes failed", level=logging.ERROR, exc_info=error)
