"""Hearing of changes at a server, in either era.

In the modern era each listener has a stream of its own, `subscriptions/listen`, which is opened again when it is lost. In the
handshake era everything arrives on the session: resources are subscribed to one by one, lists without being asked.
"""

from __future__ import annotations

import logging
import math
from collections import Counter

import trio

from ..errors import Disconnected, McpError, PeerError, RemoteProtocolError, RequestTimeout, without_traceback
from ..session import ClientSession
from ..types import (
    Model,
    ServerCapabilities,
    SubscribeRequestParams,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)
from ..types.capabilities import declares
from .changes import Change, Changes, OnChange, asked_for, change_of, common
from .link import Link
from .pauses import STEADY, pause

logger = logging.getLogger("trio_mcp.client")

ACKNOWLEDGE_TIMEOUT = 30.0
"""Seconds that a server may take to acknowledge a stream."""

END_TIMEOUT = 2.0
"""Seconds that ending a listener may take."""


class Stream:
    """One `subscriptions/listen` after another, for one listener."""

    def __init__(self, link: Link, changes: Changes, on_change: OnChange) -> None:
        self.settled = trio.Event()
        """It was acknowledged for the first time, or never will be."""
        self.done = trio.Event()
        self.scope = trio.CancelScope()
        self._link = link
        self._changes = changes
        self._on_change = on_change
        self._patience = trio.CancelScope()
        self._acknowledged = False
        self._opened = math.inf
        """When this stream was acknowledged."""
        self._lost = 0
        """Streams that were lost since one lasted."""

    async def run(self) -> None:
        try:
            with self.scope:
                await self._keep_open()
        except Exception as error:  # noqa: BLE001  whoever reads the changes gets it
            self._changes.end(error)
        finally:
            self.settled.set()
            self.done.set()

    async def _keep_open(self) -> None:
        while True:
            try:
                await self._open()
                self._changes.end()
                return
            except (Disconnected, RequestTimeout, RemoteProtocolError) as error:
                if not self.settled.is_set() or self._link.session.over is not None:
                    raise
                logger.info("a stream of changes was lost, and is opened again: %s", error)
            if trio.current_time() - self._opened >= STEADY:
                self._lost = 0
            await trio.sleep(pause(self._lost))
            self._lost += 1

    async def _open(self) -> None:
        """Open the stream and hear it to its end."""
        self._acknowledged = False
        self._opened = math.inf
        params = SubscriptionsListenRequestParams(notifications=self._changes.wanted)
        with trio.move_on_after(ACKNOWLEDGE_TIMEOUT) as self._patience:
            await self._link.request("subscriptions/listen", params, on_notification=self._hear)
            return
        raise RequestTimeout(f"the server did not acknowledge the stream within {ACKNOWLEDGE_TIMEOUT:g} seconds")

    def _hear(self, method: str, params: Model) -> None:
        if isinstance(params, SubscriptionsAcknowledgedNotificationParams):
            self._acknowledge(params.notifications)
            return
        change = change_of(method, params)
        if change is not None:
            self._on_change(change)
            self._changes.offer(change)

    def _acknowledge(self, honoured: SubscriptionFilter) -> None:
        if self._acknowledged:
            return
        self._acknowledged = True
        self._patience.deadline = math.inf
        self._opened = trio.current_time()
        self._changes.agreed = common(self._changes.wanted, honoured)
        if self.settled.is_set():
            for change in asked_for(self._changes.agreed):
                self._on_change(change)
            self._changes.missed()
        self.settled.set()


class Listening:
    """Everybody who listens through one client.

    Args:
        on_change: called with every change that is heard of, before any listener.
    """

    def __init__(self, link: Link, on_change: OnChange) -> None:
        self._link = link
        self._on_change = on_change
        self._open: dict[Changes, Stream | None] = {}
        self._uris: Counter[str] = Counter()
        """How many here subscribed to each resource (handshake era)."""
        self._turn = trio.Lock()
        """Subscribing and unsubscribing must reach the server in order."""

    # the life of a listener

    async def begin(self, changes: Changes) -> None:
        if self._link.session.modern:
            await self._begin_stream(changes)
        else:
            await self._begin_watching(changes)

    async def finish(self, changes: Changes) -> None:
        if changes not in self._open:
            return
        stream = self._open.pop(changes)
        with trio.move_on_after(END_TIMEOUT, shield=True):
            if stream is not None:
                stream.scope.cancel()
                await stream.done.wait()
            else:
                await self._forget_all(changes.agreed.resource_subscriptions or [])

    async def _begin_stream(self, changes: Changes) -> None:
        stream = Stream(self._link, changes, self._on_change)
        self._link.start(stream.run)
        self._open[changes] = stream
        try:
            await stream.settled.wait()
        except BaseException:  # a cancel, or a Ctrl-C
            await self.finish(changes)  # noqa: ASYNC102  it is shielded and bounded itself
            raise
        if changes.failure is not None:
            del self._open[changes]
            raise without_traceback(changes.failure)

    async def _begin_watching(self, changes: Changes) -> None:
        self._open[changes] = None
        wanted = changes.wanted
        offered = self._link.facts.capabilities
        changes.agreed = lists_of(wanted, offered)
        watched: list[str] = []
        try:
            for uri in dict.fromkeys(wanted.resource_subscriptions or ()):
                if declares(offered, "resources.subscribe") and await self._is_watched(uri):
                    watched.append(uri)
                    changes.agreed = changes.agreed.model_copy(update={"resource_subscriptions": list(watched)})
        except BaseException:
            await self.finish(changes)  # noqa: ASYNC102  it is shielded and bounded itself
            raise

    async def _is_watched(self, uri: str) -> bool:
        try:
            await self.subscribe(uri)
        except PeerError as error:
            logger.info("the server does not tell of changes of %s: %s", uri, error)
            return False
        return True

    # subscriptions of the handshake era

    async def subscribe(self, uri: str) -> None:
        """Ask to be told of changes of a resource. A cancel may or may not have asked."""
        async with self._turn:
            self._uris[uri] += 1
            try:
                await self._link.request("resources/subscribe", SubscribeRequestParams(uri=uri))
            except BaseException:
                self._count_down(uri)
                raise

    async def unsubscribe(self, uri: str) -> None:
        """Ask no longer, unless somebody else here still listens for it."""
        self._count_down(uri)
        await self._take_off(uri)

    async def _take_off(self, uri: str) -> None:
        async with self._turn:
            if uri not in self._uris:  # looked up in turn: somebody may have come meanwhile
                await self._link.request("resources/unsubscribe", UnsubscribeRequestParams(uri=uri))

    def _count_down(self, uri: str) -> None:
        self._uris[uri] -= 1
        if self._uris[uri] <= 0:
            del self._uris[uri]

    async def _forget_all(self, uris: list[str]) -> None:
        """Count them down at once, so that none is subscribed to again, and then tell the server of each."""
        for uri in uris:
            self._count_down(uri)
        for uri in uris:
            try:
                await self._take_off(uri)
            except McpError as error:
                logger.debug("%s was not unsubscribed from: %s", uri, error)

    # what the link tells

    def heard(self, change: Change) -> None:
        """A change came on the session, for whoever wants it."""
        self._on_change(change)
        for changes, stream in self._open.items():
            if stream is None:
                changes.offer(change)

    @property
    def wanted(self) -> bool:
        return bool(self._open or self._uris)

    async def restore(self, session: ClientSession) -> None:
        """Subscribe again in a new session, and report what may have changed while there was none."""
        with trio.move_on_after(ACKNOWLEDGE_TIMEOUT) as bound:
            for uri in list(self._uris):
                await subscribe_again(session, uri)
        if bound.cancelled_caught:
            logger.warning("the server took too long to say of which resources it still tells the changes")
        for changes in self._open:
            for change in asked_for(changes.agreed):
                self._on_change(change)
            changes.missed()

    def ended(self, why: Disconnected) -> None:
        for changes in self._open:
            changes.end(why)


def lists_of(wanted: SubscriptionFilter, offered: ServerCapabilities) -> SubscriptionFilter:
    """The lists of a filter of whose changes a server says that it tells."""
    return SubscriptionFilter(
        tools_list_changed=(wanted.tools_list_changed and declares(offered, "tools.listChanged")) or None,
        prompts_list_changed=(wanted.prompts_list_changed and declares(offered, "prompts.listChanged")) or None,
        resources_list_changed=(wanted.resources_list_changed and declares(offered, "resources.listChanged")) or None,
    )


async def subscribe_again(session: ClientSession, uri: str) -> None:
    try:
        await session.request("resources/subscribe", SubscribeRequestParams(uri=uri))
    except (PeerError, RemoteProtocolError) as error:
        logger.warning("the server no longer tells of changes of %s: %s", uri, error)
