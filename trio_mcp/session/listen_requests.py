"""Serving `subscriptions/listen`: a request that stays open and notifies of changes (2026-07-28, subscriptions).

It is an actor like any call: it counts against the same limits, ends with its client, and is cancelled in the same way.
"""

from __future__ import annotations

from functools import partial

import trio

from ..errors import LimitExceeded, RemoteProtocolError
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.meta import SUBSCRIPTION_ID
from ..runtime import Actor
from ..types import (
    CancelledNotificationParams,
    JsonObject,
    Model,
    ServerCapabilities,
    SubscriptionFilter,
    SubscriptionsAcknowledgedNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    declares,
)
from .calls.call import Call, Plan
from .subscriptions import PROMPTS, RESOURCES, TOOLS, Subscriber, Subscriptions


def listen_plan(
    params: SubscriptionsListenRequestParams,
    capabilities: ServerCapabilities,
    limit: int,
    subscriptions: Subscriptions,
) -> Plan:
    """Return the plan that serves a `subscriptions/listen`: an actor that notifies until it is cancelled, or the server ends.

    Raises:
        RemoteProtocolError: -32602, the filter names something that is no URI, or more than may be watched.
    """
    wanted = params.notifications
    lists = [
        (TOOLS, wanted.tools_list_changed, "tools.listChanged"),
        (PROMPTS, wanted.prompts_list_changed, "prompts.listChanged"),
        (RESOURCES, wanted.resources_list_changed, "resources.listChanged"),
    ]
    honoured = [change for change, asked, gate in lists if asked and declares(capabilities, gate)]
    signal = ChangeSignal()
    subscriber = Subscriber(honoured, limit, signal.set)
    if declares(capabilities, "resources.subscribe"):
        for uri in wanted.resource_subscriptions or ():
            check_watchable(subscriber, uri)
    return Plan(partial(run_listen, subscriptions, subscriber, signal), "subscriptions/listen")


def check_watchable(subscriber: Subscriber, uri: str) -> None:
    """Subscribe to a resource. Raises -32602 if too many are subscribed to already."""
    try:
        subscriber.watch(uri)
    except LimitExceeded as error:
        raise RemoteProtocolError(f"params.notifications.resourceSubscriptions: {error}", code=INVALID_PARAMS) from None


class ChangeSignal:
    """Wakes the one task that waits for a change."""

    __slots__ = ("_changed",)

    def __init__(self) -> None:
        self._changed = trio.Event()

    def set(self) -> None:
        self._changed.set()

    async def wait(self) -> None:
        await self._changed.wait()
        self._changed = trio.Event()


def honoured_filter(subscriber: Subscriber) -> SubscriptionFilter:
    """Return the part of the filter that is honoured (M-SUB-2s)."""
    return SubscriptionFilter(
        tools_list_changed=True if TOOLS in subscriber.lists else None,
        prompts_list_changed=True if PROMPTS in subscriber.lists else None,
        resources_list_changed=True if RESOURCES in subscriber.lists else None,
        resource_subscriptions=list(subscriber.uris) or None,
    )


async def run_listen(
    subscriptions: Subscriptions, subscriber: Subscriber, signal: ChangeSignal, call: Call, _actor: Actor
) -> Model:
    """Notify of changes: the body of the actor. A slow reader holds back this one stream, and then gets each change once."""
    request_id = call.facts.id
    meta: JsonObject = {SUBSCRIPTION_ID: request_id}
    with subscriptions.streaming(subscriber):
        honoured = SubscriptionsAcknowledgedNotificationParams(notifications=honoured_filter(subscriber), meta=meta)
        await call.notify("notifications/subscriptions/acknowledged", honoured)
        # After the acknowledgement: a change that comes earlier is kept, so the client misses none (M-SUB-2s).
        while not subscriptions.closed:
            await signal.wait()
            for change in subscriber.take():
                await call.notify(change.method, change.params(meta))
        # Over HTTP the end of the stream says it; where requests share the channel, the one that ends is named (M-CAN-2s).
        if not call.owns_outbox:
            ended = CancelledNotificationParams(request_id=request_id, reason="the server is shutting down", meta=meta)
            await call.notify("notifications/cancelled", ended)
    return SubscriptionsListenResult(meta=meta)
