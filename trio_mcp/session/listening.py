"""Serving `subscriptions/listen`: a request that stays open and tells of changes (2026-07-28, subscriptions).

It is an actor like any call, so it counts against the same caps, ends with its client, and is cancelled like them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from ..errors import LimitExceeded, RemoteProtocolError
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.meta import SUBSCRIPTION_ID
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
from .service import Plan
from .subscriptions import PROMPTS, RESOURCES, TOOLS, Subscriber

if TYPE_CHECKING:
    from .call import Call


def listening(params: SubscriptionsListenRequestParams, capabilities: ServerCapabilities, limit: int) -> Plan:
    """How to serve a `subscriptions/listen`: an actor that tells until it is cancelled, or the server ends.

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
    ear = Ear()
    subscriber = Subscriber(honoured, limit, ear.hear)
    if declares(capabilities, "resources.subscribe"):
        for uri in wanted.resource_subscriptions or ():
            watched(subscriber, uri)
    return Plan(partial(listen, subscriber, ear), "subscriptions/listen")


def watched(subscriber: Subscriber, uri: str) -> None:
    try:
        subscriber.watch(uri)
    except LimitExceeded as error:
        raise RemoteProtocolError(f"params.notifications.resourceSubscriptions: {error}", code=INVALID_PARAMS) from None


class Ear:
    """Wakes the one task that waits for something to hear."""

    __slots__ = ("_heard",)

    def __init__(self) -> None:
        self._heard = trio.Event()

    def hear(self) -> None:
        self._heard.set()

    async def wait(self) -> None:
        await self._heard.wait()
        self._heard = trio.Event()


def acknowledged(subscriber: Subscriber) -> SubscriptionFilter:
    """What of the filter is honoured (M-SUB-2s)."""
    return SubscriptionFilter(
        tools_list_changed=True if TOOLS in subscriber.lists else None,
        prompts_list_changed=True if PROMPTS in subscriber.lists else None,
        resources_list_changed=True if RESOURCES in subscriber.lists else None,
        resource_subscriptions=list(subscriber.uris) or None,
    )


async def listen(subscriber: Subscriber, ear: Ear, call: Call) -> Model:
    """The body of the actor. A slow reader holds back this one stream, and then gets each change once."""
    leg, subscriptions = call.leg, call.service.subscriptions
    assert leg is not None, "it asks nothing, so it has one leg"
    meta: JsonObject = {SUBSCRIPTION_ID: leg.facts.id}
    with subscriptions.streaming(subscriber):
        honoured = SubscriptionsAcknowledgedNotificationParams(notifications=acknowledged(subscriber), meta=meta)
        await leg.notify("notifications/subscriptions/acknowledged", honoured)
        while not subscriptions.closed:
            await ear.wait()
            for change in subscriber.take():
                await leg.notify(change.method, change.params(meta))
        if not leg.listeners[0].exclusive:  # others share the channel: say which of them ends (M-CAN-2s)
            ended = CancelledNotificationParams(
                request_id=leg.facts.id, reason="the server is shutting down", meta=meta
            )
            await leg.notify("notifications/cancelled", ended)
    return SubscriptionsListenResult(meta=meta)
