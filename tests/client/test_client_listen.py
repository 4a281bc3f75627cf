"""Listening for changes, in both eras."""

from __future__ import annotations

from typing import Any

import eras
import pytest
import trio
from naming import naming
from scripted import BOUND, Json, Start, Wire, conversation
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.client import Change, Changes, changes
from trio_mcp.errors import Disconnected, PeerError, RequestTimeout
from trio_mcp.protocol.meta import SUBSCRIPTION_ID
from trio_mcp.types import SubscriptionFilter

CHANGED = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
EVERYTHING = {
    "toolsListChanged": True,
    "promptsListChanged": True,
    "resourcesListChanged": True,
    "resourceSubscriptions": ["a://b"],
}


async def told(wire: Wire, request: Json, method: str, **params: Any) -> None:
    """A notification on the stream that a request opened."""
    await wire.notify(method, {**params, "_meta": {SUBSCRIPTION_ID: request["id"]}})


async def acknowledged(wire: Wire, honoured: Json | None = None) -> Json:
    """The next request, which is to listen, and is acknowledged."""
    request = await wire.request("subscriptions/listen")
    honoured = request["params"]["notifications"] if honoured is None else honoured
    await told(wire, request, "notifications/subscriptions/acknowledged", notifications=honoured)
    return request


async def begun(listener: Changes, wire: Wire, start: Start, honoured: Json | None = None) -> tuple[Changes, Json]:
    """A listener that a modern server has acknowledged, and the request that it made."""
    entered = start(listener.__aenter__)
    request = await acknowledged(wire, honoured)
    await entered.result()
    return listener, request


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


# the modern era


async def test_a_modern_server_is_asked_for_exactly_what_is_wanted_and_its_changes_arrive(
    autojump_clock: MockClock,
) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        listener = client.listen(tools=True, prompts=True, resources=True, uris=["a://b"])
        entered = start(listener.__aenter__)
        request = await acknowledged(wire)
        assert request["params"]["notifications"] == EVERYTHING
        await entered.result()
        assert listener.honoured == SubscriptionFilter.model_validate(EVERYTHING)
        for kind, method in CHANGED.items():
            await told(wire, request, method)
            assert await next_of(listener) == Change(kind)
        await told(wire, request, "notifications/resources/updated", uri="a://b/part")
        assert await next_of(listener) == Change("updated", "a://b/part")


async def test_what_the_server_does_not_honour_is_said(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        listener, _ = await begun(client.listen(tools=True, prompts=True), wire, start, {"toolsListChanged": True})
        assert listener.honoured == SubscriptionFilter(tools_list_changed=True)


async def test_what_a_server_honours_beyond_what_was_asked_for_means_nothing(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        honoured = {**EVERYTHING, "resourceSubscriptions": ["a://b", *map("a://{}".format, range(9))]}
        listener, _ = await begun(client.listen(tools=True, uris=["a://b"]), wire, start, honoured)
        assert listener.honoured == SubscriptionFilter(tools_list_changed=True, resource_subscriptions=["a://b"])


async def test_a_change_that_was_not_read_yet_is_there_once(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        listener, request = await begun(client.listen(tools=True, uris=["a://b"]), wire, start)
        for _ in range(3):
            await told(wire, request, CHANGED["tools"])
            await told(wire, request, "notifications/resources/updated", uri="a://b")
        assert await waiting(listener) == [Change("tools"), Change("updated", "a://b")]


async def test_tasks_may_share_a_listener_and_the_end_reaches_each(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        listener, request = await begun(client.listen(tools=True), wire, start)
        readers = [start(next_of, listener) for _ in range(2)]
        await wait_all_tasks_blocked()
        await wire.respond(request, {"resultType": "complete"})
        for reader in readers:
            with pytest.raises(StopAsyncIteration):
                await reader.result()


async def test_what_was_not_asked_for_is_not_heard(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        listener, request = await begun(client.listen(tools=True, uris=["a://b"]), wire, start)
        await told(wire, request, CHANGED["prompts"])
        await told(wire, request, "notifications/resources/updated", uri="a://bc")
        await wire.notify(CHANGED["tools"], {"_meta": {SUBSCRIPTION_ID: 999}})
        await wire.notify(CHANGED["tools"], {})  # of no stream
        assert await waiting(listener) == []


async def test_several_listen_at_once_and_each_hears_its_own(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        listeners = [client.listen(tools=True), client.listen(tools=True)]
        requests = []
        for listener in listeners:
            entered = start(listener.__aenter__)
            requests.append(await acknowledged(wire))
            await entered.result()
        await told(wire, requests[0], CHANGED["tools"])
        assert await waiting(listeners[0]) == [Change("tools")]
        assert await waiting(listeners[1]) == []


@pytest.mark.parametrize("how", ["result", "cancelled", "both"])
async def test_a_stream_that_the_server_ends_ends_the_iteration_after_what_was_said(
    how: str, autojump_clock: MockClock
) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        listener, request = await begun(client.listen(tools=True), wire, start)
        await told(wire, request, CHANGED["tools"])
        if how != "result":
            await wire.notify("notifications/cancelled", {"requestId": request["id"]})
        if how != "cancelled":
            meta = {SUBSCRIPTION_ID: request["id"]}
            await wire.respond(request, {"resultType": "complete", "_meta": meta})
        with trio.fail_after(BOUND):
            assert [change async for change in listener] == [Change("tools")]
        await wire.silence(30)


async def test_a_refusal_is_raised_where_listening_begins(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        entered = start(client.listen(tools=True).__aenter__)
        await wire.fail(await wire.request("subscriptions/listen"), -32601, "not here")
        with pytest.raises(PeerError, match="not here"):
            await entered.result()


async def test_a_stream_may_be_silent_for_as_long_as_nothing_changes(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        listener, request = await begun(client.listen(tools=True), wire, start)
        await trio.sleep(24 * 3600)
        await told(wire, request, CHANGED["tools"])
        assert await next_of(listener) == Change("tools")


async def test_a_stream_that_is_never_acknowledged_is_withdrawn(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        entered = start(client.listen(tools=True).__aenter__)
        request = await wire.request("subscriptions/listen")
        assert (await wire.notification("notifications/cancelled"))["requestId"] == request["id"]
        with pytest.raises(RequestTimeout, match="acknowledge"):
            await entered.result()


async def test_who_leaves_is_taken_off_at_the_server(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, start):
        listener, request = await begun(client.listen(tools=True), wire, start)
        await listener.__aexit__(None, None, None)
        assert (await wire.notification("notifications/cancelled"))["requestId"] == request["id"]
        await told(wire, request, CHANGED["tools"])  # too late
        with pytest.raises(RuntimeError, match=naming("ended")):
            await waiting(listener)


async def test_who_is_cancelled_while_it_begins_is_taken_off_too(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, wire, _start):
        with trio.move_on_after(2):
            async with client.listen(tools=True):
                raise AssertionError("it was never acknowledged")
        request = await wire.request("subscriptions/listen")
        assert (await wire.notification("notifications/cancelled"))["requestId"] == request["id"]


async def test_nothing_to_listen_to_is_refused(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern) as (client, _wire, _start):
        with pytest.raises(ValueError, match=naming("listen")):
            client.listen()


# both eras


async def listening(era: Any, client: Any, wire: Wire, start: Any) -> Changes:
    listener = client.listen(tools=True)
    entered = start(listener.__aenter__)
    if era is eras.modern:
        await acknowledged(wire)
    await entered.result()
    return listener


@pytest.mark.parametrize("era", [eras.legacy, eras.modern], ids=["legacy", "modern"])
async def test_the_end_of_the_connection_is_raised_where_the_changes_are_read(
    era: Any, autojump_clock: MockClock
) -> None:
    async with conversation(era) as (client, wire, start):
        listener = await listening(era, client, wire, start)
        reading = start(listener.__anext__)
        await wire.close()
        with pytest.raises(Disconnected):
            await reading.result()
        await listener.__aexit__(None, None, None)


@pytest.mark.parametrize("era", [eras.legacy, eras.modern], ids=["legacy", "modern"])
async def test_closing_the_client_ends_its_listeners(era: Any, autojump_clock: MockClock) -> None:
    async with conversation(era) as (client, wire, start):
        listener = await listening(era, client, wire, start)
        reading = start(listener.__anext__)
        await wait_all_tasks_blocked()
        await client.aclose()
        with pytest.raises(Disconnected):
            await reading.result()
        with pytest.raises(Disconnected):
            await client.listen(tools=True).__aenter__()


@pytest.mark.parametrize("era", [eras.legacy, eras.modern], ids=["legacy", "modern"])
async def test_a_flood_of_updates_is_bounded_and_none_is_lost(
    era: Any, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(changes, "MAX_PENDING", 10)
    async with conversation(era) as (client, wire, start):
        listener = client.listen(prompts=True, uris=["a://b"])
        entered = start(listener.__aenter__)
        if era is eras.modern:
            meta = {"_meta": {SUBSCRIPTION_ID: (await acknowledged(wire))["id"]}}
        else:
            await wire.respond(await wire.request("resources/subscribe"), {})
            meta = {}
        await entered.result()
        for number in range(100):
            await wire.notify("notifications/resources/updated", {"uri": f"a://b/{number}", **meta})
            await wait_all_tasks_blocked()
        found = await waiting(listener)
        assert len(found) <= 11
        assert Change("updated", "a://b") in found


async def test_a_handler_hears_of_every_change_in_either_era(autojump_clock: MockClock) -> None:
    seen: list[Change] = []
    async with conversation(eras.legacy, on_change=seen.append) as (_client, wire, _start):
        await wire.notify(CHANGED["prompts"], {})
        await wait_all_tasks_blocked()
    async with conversation(eras.modern, on_change=seen.append) as (client, wire, start):
        entered = start(client.listen(tools=True).__aenter__)
        request = await acknowledged(wire)
        await told(wire, request, CHANGED["tools"])
        await entered.result()
        await wait_all_tasks_blocked()
    assert seen == [Change("prompts"), Change("tools")]


# the handshake era


async def test_resources_are_subscribed_to_and_lists_are_heard_of(autojump_clock: MockClock) -> None:
    async with conversation(eras.legacy) as (client, wire, start):
        listener = client.listen(tools=True, uris=["a://b", "a://c"])
        entered = start(listener.__aenter__)
        for uri in ("a://b", "a://c"):
            request = await wire.request("resources/subscribe")
            assert request["params"]["uri"] == uri
            await wire.respond(request, {})
        await entered.result()
        assert listener.honoured == SubscriptionFilter(
            tools_list_changed=True, resource_subscriptions=["a://b", "a://c"]
        )
        await wire.notify(CHANGED["tools"], {})
        await wire.notify(CHANGED["prompts"], {})
        await wire.notify("notifications/resources/updated", {"uri": "a://c"})
        assert await waiting(listener) == [Change("tools"), Change("updated", "a://c")]
        leaving = start(listener.__aexit__, None, None, None)
        for uri in ("a://b", "a://c"):
            request = await wire.request("resources/unsubscribe")
            assert request["params"]["uri"] == uri
            await wire.respond(request, {})
        await leaving.result()


async def test_a_resource_that_cannot_be_subscribed_to_is_not_honoured(autojump_clock: MockClock) -> None:
    async with conversation(eras.legacy) as (client, wire, start):
        listener = client.listen(uris=["a://b", "a://c"])
        entered = start(listener.__aenter__)
        await wire.fail(await wire.request("resources/subscribe"), -32002)
        await wire.respond(await wire.request("resources/subscribe"), {})
        await entered.result()
        assert listener.honoured == SubscriptionFilter(resource_subscriptions=["a://c"])


async def test_a_server_that_tells_of_no_changes_honours_nothing_and_is_asked_nothing(
    autojump_clock: MockClock,
) -> None:
    from scripted import as_legacy

    async with conversation(as_legacy) as (client, wire, _start):
        async with client.listen(tools=True, prompts=True, uris=["a://b"]) as listener:
            assert listener.honoured == SubscriptionFilter()
        await wire.silence()


async def test_a_resource_that_another_listener_still_wants_stays_subscribed(autojump_clock: MockClock) -> None:
    async with conversation(eras.legacy) as (client, wire, start):
        listeners = [client.listen(uris=["a://b"]) for _ in range(2)]
        for listener in listeners:
            entered = start(listener.__aenter__)
            await wire.respond(await wire.request("resources/subscribe"), {})
            await entered.result()
        await listeners[0].__aexit__(None, None, None)
        await wire.silence()
        await wire.notify("notifications/resources/updated", {"uri": "a://b"})
        assert await waiting(listeners[1]) == [Change("updated", "a://b")]
        leaving = start(listeners[1].__aexit__, None, None, None)
        await wire.respond(await wire.request("resources/unsubscribe"), {})
        await leaving.result()


async def test_leaving_is_bounded_though_the_server_does_not_answer(autojump_clock: MockClock) -> None:
    async with conversation(eras.legacy) as (client, wire, start):
        listener = client.listen(uris=["a://b"])
        entered = start(listener.__aenter__)
        await wire.respond(await wire.request("resources/subscribe"), {})
        await entered.result()
        with trio.fail_after(5):
            await listener.__aexit__(None, None, None)
