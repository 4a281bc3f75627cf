"""Subscribing to changes at a modern server: each subscriber has its own stream.

A stream is a `subscriptions/listen` request, which is sent again when its stream is lost.
"""

# No change is lost without a sign of it. A change that happens while no stream is open cannot be seen, so after each interruption
# everything that the server honours counts as changed. A spurious change costs the program one request; a missed one leaves it
# with stale data for good. `session_subscriptions` keeps the same promise.

from __future__ import annotations

import math
from dataclasses import dataclass, field

import trio

from ..backoff import RECONNECT_BACKOFF, STABLE_AFTER
from ..errors import Disconnected, PeerError, RemoteProtocolError, RequestTimeout, without_traceback
from ..logs import peer_logger
from ..session.changes import change_of
from ..types import (
    Model,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
)
from .changes import Changes, Listeners, OnChange, intersection
from .requester import Requester, would_fail_again
from .timeouts import SUBSCRIBE_TIMEOUT, UNSUBSCRIBE_TIMEOUT

logger = peer_logger("trio_mcp.client")


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
