"""Serving `subscriptions/listen`: a request that stays open and notifies of changes (2026-07-28, subscriptions).

It is an actor like any call: it counts against the same limits, ends with its client, and is cancelled in the same way.
"""

from __future__ import annotations

from functools import partial

import trio

from ..errors import RemoteProtocolError
from ..protocol.jsonrpc import INVALID_PARAMS, Notification
from ..protocol.revisions import SUBSCRIPTION_ID, TASKS_GATE
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
from .calls.facts import RequestFacts
from .service import Service
from .subscriptions import Change, Subscriber, announced_lists, filter_of


def listen_plan(service: Service, facts: RequestFacts, params: SubscriptionsListenRequestParams) -> Plan:
    """Return the plan that serves a `subscriptions/listen`: an actor that notifies until it is cancelled, or the server ends.

    Raises:
        RemoteProtocolError: -32602, the filter names something that is not a URI, or too many of them or of tasks.
        CapabilityError: it names tasks, and the client does not declare the extension (M-TSK-7).
    """
    facts.terms.codec.check_declared(facts.method, params, facts.client_capabilities)
    wanted = params.notifications
    lists = [Change(kind) for kind in announced_lists(wanted, service.capabilities)]
    signal = trio.lowlevel.ParkingLot()
    subscriber = Subscriber(lists, service.options.watched, signal.unpark_all)
    if declares(service.capabilities, "resources.subscribe"):
        # Each URI once: a filter may repeat one a hundred thousand times, which its limit does not count.
        for uri in dict.fromkeys(wanted.resource_subscriptions or ()):
            service.check_subscription(facts.caller, uri)
            subscriber.subscribe(uri)
        subscriber.sees = partial(service.sees, facts.caller)
    if declares(service.capabilities, TASKS_GATE):
        task_ids = tuple(dict.fromkeys(wanted.task_ids or ()))
        if len(task_ids) > service.options.watched:
            limit = service.options.watched
            raise RemoteProtocolError(
                f"the filter names more than {limit} tasks, which is the limit", code=INVALID_PARAMS
            )
        subscriber.task_ids = task_ids
    return Plan(partial(run_listen, service, subscriber, signal), facts.method)


async def run_listen(
    service: Service,
    subscriber: Subscriber,
    signal: trio.lowlevel.ParkingLot,
    call: Call,
    _place: Actor | Lane,
) -> Model:
    """Notify of changes: the body of the actor. A slow reader holds back this one stream, and then gets each change once."""
    request_id, subscriptions = call.facts.id, service.subscriptions
    meta: JsonObject = {SUBSCRIPTION_ID: request_id}
    # Those of others, and those that are no more, are left out of what is acknowledged.
    subscriber.task_ids = await visible_tasks(service, call, subscriber.task_ids)
    subscriber.caller = call.actor.caller
    with subscriptions.open_stream(subscriber):
        honoured = filter_of([change.kind for change in subscriber.lists], subscriber.uris, subscriber.task_ids)
        acknowledged = SubscriptionsAcknowledgedNotificationParams(notifications=honoured, meta=meta)
        await call.notify("notifications/subscriptions/acknowledged", acknowledged)
        # After the acknowledgement: a change that comes earlier is kept, so the client misses none (M-SUB-2s).
        for task_id in subscriber.task_ids:
            subscriptions.deliver(Change("task", task_id))
        while not subscriptions.closed:
            if not subscriber.pending:
                await signal.park()
            for change in subscriber.take():
                await send_change(service, call, change, meta)
        # Over HTTP the end of the stream says it; where requests share the channel, the one that ends is named (M-CAN-2s).
        if call.target is not None and not call.target.owns_outbox:
            ended = CancelledNotificationParams(request_id=request_id, reason="the server is shutting down", meta=meta)
            await call.notify("notifications/cancelled", ended)
    return SubscriptionsListenResult(meta=meta)


async def visible_tasks(service: Service, call: Call, task_ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the tasks that the caller may see."""
    return tuple([task_id for task_id in task_ids if await service.tasks.find(call.facts, task_id) is not None])


async def send_change(service: Service, call: Call, change: Change, meta: JsonObject) -> None:
    """Notify of a change. Of a task the newest state is sent, however often it has changed."""
    if change.kind != "task":
        await call.notify(change.method, change.params(meta))
        return
    assert change.uri is not None
    seen = await service.tasks.find(call.facts, change.uri)
    if seen is not None:
        message = call.facts.terms.codec.encode_task_notification(service.tasks.state(seen), meta)
        await call.send(Notification(*message))
