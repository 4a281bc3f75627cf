"""What the tests of listeners share."""

from __future__ import annotations

from typing import Any

import trio
from scripted import BOUND, Json, Start, Wire
from trio.testing import wait_all_tasks_blocked
from wire_terms import SUBSCRIPTION_ID

from trio_mcp.client import Change, Changes, Client


async def subscribed(client: Client, wire: Any, start: Start, *uris: str, **lists: bool) -> Changes:
    """A listener for these resources of a legacy server, which takes each subscription."""
    listener = client.listen(uris=uris, **lists)
    entered = start(listener.__aenter__)
    for _ in uris:
        await wire.reply("resources/subscribe", {})
    await entered.result()
    return listener


async def notify(wire: Wire, request: Json, method: str, **params: Any) -> None:
    """A notification on the stream that a request opened."""
    await wire.notify(method, {**params, "_meta": {SUBSCRIPTION_ID: request["id"]}})


async def acknowledged(wire: Wire, honoured: Json | None = None) -> Json:
    """The next request, which is to listen, and is acknowledged."""
    request = await wire.request("subscriptions/listen")
    honoured = request["params"]["notifications"] if honoured is None else honoured
    await notify(wire, request, "notifications/subscriptions/acknowledged", notifications=honoured)
    return request


async def begun(listener: Changes, wire: Wire, start: Start, honoured: Json | None = None) -> Json:
    """Open a listener at a modern server, which acknowledges the request that is returned."""
    entered = start(listener.__aenter__)
    request = await acknowledged(wire, honoured)
    await entered.result()
    return request


async def next_of(listener: Changes) -> Change:
    with trio.fail_after(BOUND):
        return await listener.__anext__()


async def waiting(listener: Changes) -> list[Change]:
    """What can be read now."""
    await wait_all_tasks_blocked()
    found = []
    with trio.move_on_after(1):
        async for change in listener:
            found.append(change)
    return found
