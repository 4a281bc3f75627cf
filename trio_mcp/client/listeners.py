"""Subscribing to changes at a server, in either era.

In the modern era each subscriber has its own stream: a `subscriptions/listen` request, which is sent again when its stream is
lost. In the legacy era everything arrives on the session: the client subscribes to single resources, and the server announces
changes of its lists unasked.
"""

# Both kinds keep one promise to a subscriber: no change is lost without a sign of it. A change that happens while no stream or
# session is open cannot be seen, so after each interruption everything that the server honours counts as changed. A spurious
# change costs the program one request; a missed one leaves it with stale data for good.
#
# The two differ in who retries. A modern stream is its own request, so each `ListenStream` reopens itself. Legacy subscribers
# share the session, so the link reopens it once for all of them and then calls `restore`.

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import trio

from ..backoff import STABLE_AFTER, Backoff
from ..errors import (
    CapabilityError,
    Disconnected,
    McpError,
    PeerError,
    RemoteProtocolError,
    RequestTimeout,
    without_traceback,
)
from ..session import ClientSession
from ..session.client import OnNotification
from ..session.idle_timeout import OnProgress
from ..types import (
    Model,
    RequestParams,
    ServerCapabilities,
    SubscribeRequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from ..types.capabilities import declares
from .changes import (
    Change,
    Changes,
    OnChange,
    change_of,
    changes_matching,
    filter_of,
    intersection,
    lists_in,
)

logger = logging.getLogger("trio_mcp.client")

ACKNOWLEDGE_TIMEOUT = 30.0
"""Seconds that a server may take to acknowledge a stream."""

END_TIMEOUT = 2.0
"""Seconds that ending a subscription may take."""

BACKOFF = Backoff(first=0.5)


class SendRequest(Protocol):
    """Sends a request and returns its result, as `ClientSession.request` does."""

    async def __call__(
        self,
        method: str,
        params: RequestParams,
        /,
        *,
        timeout: float = ...,
        idle: float = ...,
        on_progress: OnProgress | None = ...,
        on_notification: OnNotification | None = ...,
        headers: Mapping[str, str] = ...,
    ) -> Model: ...


# A protocol, and not `Link` itself, because the link knows its listeners: the import would close a circle.
class Requester(Protocol):
    """The part of the link that listeners use."""

    request: SendRequest

    @property
    def session(self) -> ClientSession: ...

    @property
    def server_capabilities(self) -> ServerCapabilities: ...

    def start(self, fn: Callable[[], Awaitable[object]], /) -> None:
        """Run a function in a task of the link; it must let only `trio.Cancelled` out."""
        ...


class Listeners(ABC):
    """All subscribers of one client.

    Args:
        on_change: called with each change, before any subscriber gets it.

    What a session brings, `dispatch_change` and `restore`, does nothing here: a modern server has none.
    """

    def __init__(self, link: Requester, on_change: OnChange) -> None:
        self._link = link
        self._on_change = on_change

    @abstractmethod
    async def begin(self, changes: Changes, /) -> None:
        """Subscribe to changes; returns when the server has agreed, or raises."""

    @abstractmethod
    async def finish(self, changes: Changes, /) -> None:
        """Unsubscribe again. Shielded and bounded."""

    @abstractmethod
    async def subscribe(self, uri: str) -> None:
        """Subscribe to one resource, for `on_change` alone.

        Raises:
            CapabilityError: the server's revision has no such request.
        """

    @abstractmethod
    async def unsubscribe(self, uri: str) -> None:
        """Take one `subscribe` back. Raises the same errors."""

    @abstractmethod
    def end(self, why: Disconnected) -> None:
        """End every subscription: the connection is closed."""

    @property
    def needs_session(self) -> bool:
        """Whether a subscriber waits for what only an open session brings. A lost session is then reopened immediately."""
        return False

    def dispatch_change(self, change: Change) -> None:  # noqa: B027
        """Pass a change that came on the session to the subscribers that want it."""

    async def restore(self, session: ClientSession) -> None:  # noqa: B027
        """Subscribe again in a session that was reopened, and report what may have changed meanwhile."""


# modern


class ListenStream:
    """One `subscriptions/listen` request after another, for one subscriber."""

    def __init__(self, link: Requester, changes: Changes, on_change: OnChange) -> None:
        self.started = trio.Event()
        """Set when the stream is acknowledged for the first time, or has failed before."""
        self.done = trio.Event()
        self.scope = trio.CancelScope()
        self._link = link
        self._changes = changes
        self._on_change = on_change
        self._acknowledge_scope = trio.CancelScope()
        self._acknowledged_at = math.inf
        self._losses = 0
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
            except (Disconnected, RequestTimeout, RemoteProtocolError) as error:
                # The first stream's failure is the caller's to handle; a closed connection brings no other stream.
                if not self.started.is_set() or self._link.session.closed_because is not None:
                    raise
                logger.info("a stream of changes was lost; reopening it: %s", error)
            # Measured from the acknowledgement: a server that accepts the connection and drops it after ten seconds without
            # an acknowledgement is not stable. Without one the time is infinite, and the difference negative.
            if trio.current_time() - self._acknowledged_at >= STABLE_AFTER:
                self._losses = 0
            await trio.sleep(BACKOFF.delay(self._losses))
            self._losses += 1

    async def _open(self) -> None:
        """Open the stream and read it to its end."""
        self._acknowledged_at = math.inf
        params = SubscriptionsListenRequestParams(notifications=self._changes.wanted)
        # The request itself has no timeout: its answer is the end of the stream, which may come after days. Only the
        # acknowledgement has one, and `_acknowledge` lifts it.
        with trio.move_on_after(ACKNOWLEDGE_TIMEOUT) as self._acknowledge_scope:
            await self._link.request("subscriptions/listen", params, on_notification=self._on_notification)
            return
        raise RequestTimeout(f"the server did not acknowledge the stream within {ACKNOWLEDGE_TIMEOUT:g} seconds")

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
            for change in changes_matching(self._changes.honoured_filter):
                self._on_change(change)
            self._changes.add_all()
        self.started.set()


class ListenStreams(Listeners):
    """Subscribers that have a stream each."""

    def __init__(self, link: Requester, on_change: OnChange, version: str) -> None:
        super().__init__(link, on_change)
        self._version = version
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
        with trio.move_on_after(END_TIMEOUT, shield=True):
            stream.scope.cancel()
            await stream.done.wait()

    async def subscribe(self, uri: str) -> None:  # noqa: ARG002
        raise CapabilityError(f"subscribe is for legacy servers; {self._version} has Client.listen for it", {})

    async def unsubscribe(self, uri: str) -> None:  # noqa: ARG002
        raise CapabilityError(f"unsubscribe is for legacy servers; {self._version} has Client.listen for it", {})

    def end(self, why: Disconnected) -> None:
        for changes in self._streams:
            changes.end(why)


# legacy


class Subscriptions(Listeners):
    """Subscribers of one session, which share its subscriptions to single resources."""

    def __init__(self, link: Requester, on_change: OnChange) -> None:
        super().__init__(link, on_change)
        self._open: dict[Changes, None] = {}
        self._uris: Counter[str] = Counter()
        """Subscribers of each resource."""
        # Requests to subscribe and to unsubscribe must reach the server in the order of the counts above. Over HTTP each is
        # a POST, and two in flight may overtake each other: the server would end up without a subscription that has one
        # subscriber left.
        self._turn = trio.Lock()

    async def begin(self, changes: Changes, /) -> None:
        self._open[changes] = None
        wanted = changes.wanted
        offered = self._link.server_capabilities
        changes.honoured_filter = lists_of(wanted, offered)
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
        with trio.move_on_after(END_TIMEOUT, shield=True):
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
        return bool(self._open or self._uris)

    async def restore(self, session: ClientSession) -> None:
        with trio.move_on_after(ACKNOWLEDGE_TIMEOUT) as bound:
            # A copy: a subscriber may come or go during any of these requests. They go to the session directly, since the
            # link's `request` would wait for the very attempt that this is a part of.
            for uri in list(self._uris):
                await resubscribe(session, uri)
        if bound.cancelled_caught:
            logger.warning("the server took too long to restore the subscriptions to resources")
        for changes in self._open:
            for change in changes_matching(changes.honoured_filter):
                self._on_change(change)
            changes.add_all()

    def end(self, why: Disconnected) -> None:
        for changes in self._open:
            changes.end(why)


def lists_of(wanted: SubscriptionFilter, offered: ServerCapabilities) -> SubscriptionFilter:
    """Return the lists of a filter whose changes the server announces, by its capabilities."""
    return filter_of([kind for kind in lists_in(wanted) if declares(offered, f"{kind}.listChanged")])


async def resubscribe(session: ClientSession, uri: str) -> None:
    """Subscribe to a resource in a new session. A refusal is only logged: the other subscriptions still work."""
    try:
        await session.request("resources/subscribe", SubscribeRequestParams(uri=uri))
    except (PeerError, RemoteProtocolError) as error:
        logger.warning("the server no longer announces changes of %s: %s", uri, error)
