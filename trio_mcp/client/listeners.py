"""Subscribing to changes at a server, in either era.

In the modern era each subscriber has its own stream, a `subscriptions/listen` request that is opened again when it is lost. In
the legacy era everything arrives on the session: single resources are subscribed to, changes of lists come anyway.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
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
from .changes import Change, Changes, OnChange, change_of, changes_matching, intersection

logger = logging.getLogger("trio_mcp.client")

ACKNOWLEDGE_TIMEOUT = 30.0
"""Seconds that a server may take to acknowledge a stream."""

END_TIMEOUT = 2.0
"""Seconds that ending a subscription may take."""

BACKOFF = Backoff(first=0.5)


class Requester(Protocol):
    """What listeners need of the link to the server."""

    @property
    def session(self) -> ClientSession: ...

    @property
    def server_capabilities(self) -> ServerCapabilities: ...

    async def request(
        self,
        method: str,
        params: RequestParams,
        /,
        *,
        timeout: float = ...,
        on_notification: OnNotification | None = ...,
    ) -> Model:
        """Send a request and return its result, as `ClientSession.request` does."""
        ...

    def start(self, fn: Callable[[], Awaitable[object]], /) -> None:
        """Run a function in a task of the link; it must let only `trio.Cancelled` out."""
        ...


class Listeners(ABC):
    """All subscribers of one client.

    Args:
        on_change: called with each change, before any subscriber gets it.
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
        """Take one `subscribe` back. Raises as that does."""

    @abstractmethod
    def dispatch_change(self, change: Change) -> None:
        """Hand a change that came on the session to the subscribers that want it."""

    @property
    @abstractmethod
    def needs_session(self) -> bool:
        """Whether a subscriber waits for what only an open session brings: a lost one is then opened again at once."""

    @abstractmethod
    async def restore(self, session: ClientSession) -> None:
        """Subscribe again in a session that was reopened, and report what may have changed meanwhile."""

    @abstractmethod
    def end(self, why: Disconnected) -> None:
        """End every subscription: the connection is closed."""


# modern


class ListenStream:
    """One `subscriptions/listen` request after another, for one subscriber."""

    def __init__(self, link: Requester, changes: Changes, on_change: OnChange) -> None:
        self.started = trio.Event()
        """Set when the stream was acknowledged for the first time, or never will be."""
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
                logger.info("a stream of changes was lost, and is opened again: %s", error)
            if trio.current_time() - self._acknowledged_at >= STABLE_AFTER:
                self._losses = 0
            await trio.sleep(BACKOFF.delay(self._losses))
            self._losses += 1

    async def _open(self) -> None:
        """Open the stream and read it to its end."""
        self._acknowledged_at = math.inf
        params = SubscriptionsListenRequestParams(notifications=self._changes.wanted)
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
        if self._acknowledged_at < math.inf:  # a server acknowledges a stream once; what it repeats means nothing
            return
        self._acknowledge_scope.deadline = math.inf
        self._acknowledged_at = trio.current_time()
        self._changes.honoured_filter = intersection(self._changes.wanted, honoured)
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
        stream = ListenStream(self._link, changes, self._on_change)
        self._link.start(stream.run)
        self._streams[changes] = stream
        try:
            await stream.started.wait()
        except BaseException:  # a cancel, or a Ctrl-C
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
        raise self._use_listen("subscribe")

    async def unsubscribe(self, uri: str) -> None:  # noqa: ARG002
        raise self._use_listen("unsubscribe")

    def _use_listen(self, method: str) -> CapabilityError:
        return CapabilityError(f"{method} is for legacy servers; {self._version} has Client.listen for it", {})

    def dispatch_change(self, change: Change) -> None:
        """A change that names no stream was subscribed to by none of them."""

    @property
    def needs_session(self) -> bool:
        return False

    async def restore(self, session: ClientSession) -> None:
        """There is no session; each stream opens itself again."""

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
        self._turn = trio.Lock()
        """Subscribe and unsubscribe requests must reach the server in order."""

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
                    update = {"resource_subscriptions": list(honoured)}
                    changes.honoured_filter = changes.honoured_filter.model_copy(update=update)
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
            logger.info("the server does not tell of changes of %s: %s", uri, error)
            return False
        return True

    async def subscribe(self, uri: str) -> None:
        """Subscribe to one resource. After a cancel the server may or may not have got the request."""
        async with self._turn:
            self._uris[uri] += 1
            try:
                await self._link.request("resources/subscribe", SubscribeRequestParams(uri=uri))
            except BaseException:
                self._release_uri(uri)
                raise

    async def unsubscribe(self, uri: str) -> None:
        """Take one subscription back; the server is asked only when it was the last one of this resource."""
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
            for uri in list(self._uris):
                await resubscribe(session, uri)
        if bound.cancelled_caught:
            logger.warning("the server took too long to say of which resources it still tells the changes")
        for changes in self._open:
            for change in changes_matching(changes.honoured_filter):
                self._on_change(change)
            changes.add_all()

    def end(self, why: Disconnected) -> None:
        for changes in self._open:
            changes.end(why)


def lists_of(wanted: SubscriptionFilter, offered: ServerCapabilities) -> SubscriptionFilter:
    """Return the lists of a filter whose changes the server announces, by its capabilities."""
    return SubscriptionFilter(
        tools_list_changed=(wanted.tools_list_changed and declares(offered, "tools.listChanged")) or None,
        prompts_list_changed=(wanted.prompts_list_changed and declares(offered, "prompts.listChanged")) or None,
        resources_list_changed=(wanted.resources_list_changed and declares(offered, "resources.listChanged")) or None,
    )


async def resubscribe(session: ClientSession, uri: str) -> None:
    try:
        await session.request("resources/subscribe", SubscribeRequestParams(uri=uri))
    except (PeerError, RemoteProtocolError) as error:
        logger.warning("the server no longer tells of changes of %s: %s", uri, error)
