"""Subscribing to changes at a legacy server: everything arrives on the session, which all subscribers share.

The client subscribes to single resources, and the server announces changes of its lists unasked.
"""

# No change is lost without a sign of it: after each interruption everything that the server honours counts as changed, as in
# `listen_streams`. The two differ in who retries. There each stream is its own request, and reopens itself. Here the link reopens
# the session once for all subscribers, and then calls `restore`.

from __future__ import annotations

from collections import Counter

import trio

from ..errors import Disconnected, McpError, PeerError, RemoteProtocolError, without_traceback
from ..logs import peer_logger
from ..session import ClientSession
from ..session.changes import Change, announced_lists, filter_of
from ..types import SubscribeRequestParams, UnsubscribeRequestParams
from ..types.capabilities import declares
from .changes import Changes, Listeners, OnChange
from .requester import Requester
from .timeouts import SUBSCRIBE_TIMEOUT, UNSUBSCRIBE_TIMEOUT

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
