"""Serving `subscriptions/listen`: a request that stays open and notifies of changes (2026-07-28, subscriptions).

It is an actor like any call: it counts against the same limits, ends with its client, and is cancelled in the same way.
"""

from __future__ import annotations

from functools import partial

import trio

from ..protocol.meta import SUBSCRIPTION_ID
from ..runtime import Actor, Lane
from ..types import (
    CancelledNotificationParams,
    JsonObject,
    Model,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    declares,
)
from .calls.call import Call, Plan
from .changes import Change, announced_lists, filter_of
from .service import Service
from .subscriptions import Subscriber, Subscriptions


def listen_plan(service: Service, params: SubscriptionsListenRequestParams) -> Plan:
    """Return the plan that serves a `subscriptions/listen`: an actor that notifies until it is cancelled, or the server ends.

    Raises:
        RemoteProtocolError: -32602, the filter names something that is no URI, or too many of them.
    """
    wanted = params.notifications
    lists = [Change(kind) for kind in announced_lists(wanted, service.capabilities)]
    signal = trio.lowlevel.ParkingLot()
    subscriber = Subscriber(lists, service.options.watched, signal.unpark_all)
    if declares(service.capabilities, "resources.subscribe"):
        # Each URI once: a filter may repeat one a hundred thousand times, which its limit does not count.
        for uri in dict.fromkeys(wanted.resource_subscriptions or ()):
            subscriber.subscribe(uri)
    return Plan(partial(run_listen, service.subscriptions, subscriber, signal), "subscriptions/listen")


async def run_listen(
    subscriptions: Subscriptions,
    subscriber: Subscriber,
    signal: trio.lowlevel.ParkingLot,
    call: Call,
    _place: Actor | Lane,
) -> Model:
    """Notify of changes: the body of the actor. A slow reader holds back this one stream, and then gets each change once."""
    request_id = call.facts.id
    meta: JsonObject = {SUBSCRIPTION_ID: request_id}
    with subscriptions.open_stream(subscriber):
        honoured = filter_of([change.kind for change in subscriber.lists], subscriber.uris)
        acknowledged = SubscriptionsAcknowledgedNotificationParams(notifications=honoured, meta=meta)
        await call.notify("notifications/subscriptions/acknowledged", acknowledged)
        # After the acknowledgement: a change that comes earlier is kept, so the client misses none (M-SUB-2s).
        while not subscriptions.closed:
            if not subscriber.pending:
                await signal.park()
            for change in subscriber.take():
                await call.notify(change.method, change.params(meta))
        # Over HTTP the end of the stream says it; where requests share the channel, the one that ends is named (M-CAN-2s).
        if call.target is not None and not call.target.owns_outbox:
            ended = CancelledNotificationParams(request_id=request_id, reason="the server is shutting down", meta=meta)
            await call.notify("notifications/cancelled", ended)
    return SubscriptionsListenResult(meta=meta)
