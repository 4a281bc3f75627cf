"""Listening for changes in both eras, and on through lost streams and lost sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from listening import acknowledged, begun, next_of, notify, subscribed, waiting
from naming import naming
from scripted import BOUND, Json, Start, Wire, as_legacy, as_modern, conversation
from scripted_http import Exchange, HttpWire, event, http_conversation, in_session, modern_http
from trio.testing import wait_all_tasks_blocked
from wire_terms import SUBSCRIPTION_ID

from trio_mcp.client import Change, Changes, changes
from trio_mcp.errors import Disconnected, PeerError, RequestTimeout
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


@asynccontextmanager
async def listening(**wanted: Any) -> AsyncIterator[tuple[Changes, Wire, Json, Start]]:
    """A listener that a modern server has acknowledged, and the request that it made."""
    async with conversation(as_modern) as (client, wire, start):
        listener = client.listen(**wanted)
        yield listener, wire, await begun(listener, wire, start), start


# the modern era


async def test_a_modern_server_is_asked_for_exactly_what_is_wanted_and_its_changes_arrive() -> None:
    async with listening(tools=True, prompts=True, resources=True, uris=["a://b"]) as (listener, wire, request, _start):
        assert request["params"]["notifications"] == EVERYTHING
        assert listener.honoured == SubscriptionFilter.model_validate(EVERYTHING)
        for kind, method in CHANGED.items():
            await notify(wire, request, method)
            assert await next_of(listener) == Change(kind)
        await notify(wire, request, "notifications/resources/updated", uri="a://b/part")
        assert await next_of(listener) == Change("updated", "a://b/part")


@pytest.mark.parametrize(
    ("honoured", "said"),
    [
        ({"toolsListChanged": True}, {"toolsListChanged": True}),
        (
            {**EVERYTHING, "resourceSubscriptions": ["a://b", *map("a://{}".format, range(9))]},
            {"toolsListChanged": True, "resourceSubscriptions": ["a://b"]},
        ),
    ],
    ids=["less", "more"],
)
async def test_what_counts_is_what_was_asked_for_and_the_server_honours(honoured: Json, said: Json) -> None:
    async with conversation(as_modern) as (client, wire, start):
        listener = client.listen(tools=True, uris=["a://b"])
        await begun(listener, wire, start, honoured)
        assert listener.honoured == SubscriptionFilter.model_validate(said)


async def test_a_change_that_was_not_read_yet_is_there_once() -> None:
    async with listening(tools=True, uris=["a://b"]) as (listener, wire, request, _start):
        for _ in range(3):
            await notify(wire, request, CHANGED["tools"])
            await notify(wire, request, "notifications/resources/updated", uri="a://b")
        assert await waiting(listener) == [Change("tools"), Change("updated", "a://b")]


async def test_tasks_may_share_a_listener_and_the_end_reaches_each() -> None:
    async with listening(tools=True) as (listener, wire, request, start):
        readers = [start(next_of, listener) for _ in range(2)]
        await wait_all_tasks_blocked()
        await wire.respond(request, {"resultType": "complete"})
        for reader in readers:
            await reader.fails(StopAsyncIteration)


async def test_what_was_not_asked_for_is_not_heard() -> None:
    async with listening(tools=True, uris=["a://b"]) as (listener, wire, request, _start):
        await notify(wire, request, CHANGED["prompts"])
        await notify(wire, request, "notifications/resources/updated", uri="a://bc")
        await wire.notify(CHANGED["tools"], {"_meta": {SUBSCRIPTION_ID: 999}})
        await wire.notify(CHANGED["tools"], {})  # of no stream
        assert await waiting(listener) == []


async def test_several_listen_at_once_and_each_hears_its_own() -> None:
    async with conversation(as_modern) as (client, wire, start):
        listeners = [client.listen(tools=True), client.listen(tools=True)]
        first, _ = [await begun(listener, wire, start) for listener in listeners]
        await notify(wire, first, CHANGED["tools"])
        assert [await waiting(listener) for listener in listeners] == [[Change("tools")], []]


@pytest.mark.parametrize("how", ["result", "cancelled", "both"])
async def test_a_stream_that_the_server_ends_ends_the_iteration_after_what_was_said(how: str) -> None:
    async with listening(tools=True) as (listener, wire, request, _start):
        await notify(wire, request, CHANGED["tools"])
        if how != "result":
            await wire.notify("notifications/cancelled", {"requestId": request["id"]})
        if how != "cancelled":
            meta = {SUBSCRIPTION_ID: request["id"]}
            await wire.respond(request, {"resultType": "complete", "_meta": meta})
        with trio.fail_after(BOUND):
            assert [change async for change in listener] == [Change("tools")]
        await wire.silence(30)


async def test_a_refusal_is_raised_where_listening_begins() -> None:
    async with conversation(as_modern) as (client, wire, start):
        entered = start(client.listen(tools=True).__aenter__)
        await wire.refuse("subscriptions/listen", -32601, "not here")
        await entered.fails(PeerError, "not here")


async def test_a_stream_may_be_silent_for_as_long_as_nothing_changes() -> None:
    async with listening(tools=True) as (listener, wire, request, _start):
        await trio.sleep(24 * 3600)
        await notify(wire, request, CHANGED["tools"])
        assert await next_of(listener) == Change("tools")


async def test_a_stream_that_is_never_acknowledged_is_withdrawn() -> None:
    async with conversation(as_modern) as (client, wire, _start):
        with pytest.raises(RequestTimeout, match="acknowledge"):
            await client.listen(tools=True).__aenter__()
        request = await wire.request("subscriptions/listen")
        assert (await wire.notification("notifications/cancelled"))["requestId"] == request["id"]


async def test_who_leaves_is_taken_off_at_the_server() -> None:
    async with listening(tools=True) as (listener, wire, request, _start):
        await listener.__aexit__(None, None, None)
        assert (await wire.notification("notifications/cancelled"))["requestId"] == request["id"]
        await notify(wire, request, CHANGED["tools"])  # too late
        with pytest.raises(RuntimeError, match=naming("ended")):
            await waiting(listener)


async def test_who_is_cancelled_while_it_begins_is_taken_off_too() -> None:
    async with conversation(as_modern) as (client, wire, _start):
        with trio.move_on_after(2):
            async with client.listen(tools=True):
                raise AssertionError("it was never acknowledged")
        request = await wire.request("subscriptions/listen")
        assert (await wire.notification("notifications/cancelled"))["requestId"] == request["id"]


# both eras


@pytest.mark.parametrize("end", ["server", "client"])
async def test_the_end_of_the_connection_is_raised_where_the_changes_are_read(opening: Any, end: str) -> None:
    async with conversation(opening) as (client, wire, start):
        listener = client.listen(tools=True)
        await (begun(listener, wire, start) if opening is as_modern else listener.__aenter__())
        reading = start(listener.__anext__)
        await wait_all_tasks_blocked()
        await (wire.close() if end == "server" else client.aclose())
        await reading.fails(Disconnected)
        await listener.__aexit__(None, None, None)


async def test_a_flood_of_updates_is_bounded_and_none_is_lost(opening: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_PENDING", 10)
    async with conversation(opening) as (client, wire, start):
        if opening is as_modern:
            listener = client.listen(prompts=True, uris=["a://b"])
            meta = {"_meta": {SUBSCRIPTION_ID: (await begun(listener, wire, start))["id"]}}
        else:
            listener, meta = await subscribed(client, wire, start, "a://b", prompts=True), {}
        for number in range(100):
            await wire.notify("notifications/resources/updated", {"uri": f"a://b/{number}", **meta})
            await wait_all_tasks_blocked()
        found = await waiting(listener)
        assert len(found) <= 11
        assert Change("updated", "a://b") in found


async def test_a_handler_hears_of_every_change_in_either_era() -> None:
    seen: list[Change] = []
    async with conversation(as_legacy, on_change=seen.append) as (_client, wire, _start):
        await wire.notify(CHANGED["prompts"], {})
        await wait_all_tasks_blocked()
    async with conversation(as_modern, on_change=seen.append) as (client, wire, start):
        entered = start(client.listen(tools=True).__aenter__)
        request = await acknowledged(wire)
        await notify(wire, request, CHANGED["tools"])
        await entered.result()
        await wait_all_tasks_blocked()
    assert seen == [Change("prompts"), Change("tools")]


# the legacy era


async def uris_of(wire: Wire, method: str, count: int) -> list[str]:
    """The URIs of the next requests of this method, which are answered."""
    return [(await wire.reply(method, {}))["params"]["uri"] for _ in range(count)]


async def test_resources_are_subscribed_to_and_lists_are_heard_of() -> None:
    uris = ["a://b", "a://c"]
    async with conversation(as_legacy) as (client, wire, start):
        listener = client.listen(tools=True, uris=uris)
        entered = start(listener.__aenter__)
        assert await uris_of(wire, "resources/subscribe", 2) == uris
        await entered.result()
        assert listener.honoured == SubscriptionFilter(tools_list_changed=True, resource_subscriptions=uris)
        await wire.notify(CHANGED["tools"], {})
        await wire.notify(CHANGED["prompts"], {})
        await wire.notify("notifications/resources/updated", {"uri": "a://c"})
        assert await waiting(listener) == [Change("tools"), Change("updated", "a://c")]
        leaving = start(listener.__aexit__, None, None, None)
        assert await uris_of(wire, "resources/unsubscribe", 2) == uris
        await leaving.result()


async def test_a_resource_that_cannot_be_subscribed_to_is_not_honoured() -> None:
    async with conversation(as_legacy) as (client, wire, start):
        listener = client.listen(uris=["a://b", "a://c"])
        entered = start(listener.__aenter__)
        await wire.refuse("resources/subscribe", -32002)
        await wire.reply("resources/subscribe", {})
        await entered.result()
        assert listener.honoured == SubscriptionFilter(resource_subscriptions=["a://c"])


async def test_a_server_that_tells_of_no_changes_honours_nothing_and_is_asked_nothing() -> None:
    async with conversation(partial(as_legacy, capabilities={"tools": {}})) as (client, wire, _start):
        async with client.listen(tools=True, prompts=True, uris=["a://b"]) as listener:
            assert listener.honoured == SubscriptionFilter()
        await wire.silence()


async def test_a_resource_that_another_listener_still_wants_stays_subscribed() -> None:
    async with conversation(as_legacy) as (client, wire, start):
        first, second = [await subscribed(client, wire, start, "a://b") for _ in range(2)]
        await first.__aexit__(None, None, None)
        await wire.silence()
        await wire.notify("notifications/resources/updated", {"uri": "a://b"})
        assert await waiting(second) == [Change("updated", "a://b")]
        leaving = start(second.__aexit__, None, None, None)
        assert await uris_of(wire, "resources/unsubscribe", 1) == ["a://b"]
        await leaving.result()


async def test_leaving_is_bounded_though_the_server_does_not_answer() -> None:
    async with conversation(as_legacy) as (client, wire, start):
        listener = await subscribed(client, wire, start, "a://b")
        with trio.fail_after(5):
            await listener.__aexit__(None, None, None)


# lost streams and lost sessions, over HTTP


async def stream_of(wire: HttpWire) -> Exchange:
    """The next stream, acknowledged."""
    post = await wire.post("subscriptions/listen")
    post.stream()
    params = {"notifications": post.message["params"]["notifications"], "_meta": {SUBSCRIPTION_ID: post.message["id"]}}
    post.say(event({"method": "notifications/subscriptions/acknowledged", "params": params}))
    return post


async def test_a_lost_stream_is_opened_again_after_a_while_and_what_may_have_changed_is_reported() -> None:
    async with modern_http() as (client, wire, start):
        listener = client.listen(tools=True, uris=["a://b"])
        entered = start(listener.__aenter__)
        post = await stream_of(wire)
        await entered.result()
        assert await waiting(listener) == []
        post.break_off()
        await post.left.wait()
        lost = trio.current_time()
        again = await wire.post("subscriptions/listen")
        assert 0.25 <= again.at - lost <= 0.5
        assert again.message["id"] != post.message["id"]
        again.answer(503)  # not yet
        third = await stream_of(wire)
        assert 0.5 <= third.at - again.at <= 1
        assert await waiting(listener) == [Change("tools"), Change("updated", "a://b")]
        params = {"uri": "a://b", "_meta": {SUBSCRIPTION_ID: third.message["id"]}}
        third.say(event({"method": "notifications/resources/updated", "params": params}))
        assert await next_of(listener) == Change("updated", "a://b")
        third.say(event({"id": third.message["id"], "result": {"resultType": "complete"}}))
        third.end()
        with pytest.raises(StopAsyncIteration):
            await next_of(listener)


async def test_a_lost_session_is_opened_again_for_those_who_listen_and_they_subscribe_again() -> None:
    async with http_conversation() as (client, wire, start):
        get = await wire.with_stream()
        get.stream()
        listener = await subscribed(client, wire, start, "a://b", prompts=True)
        get.end()
        (await wire.next("GET")).answer(404)
        again = await wire.with_stream("S2")
        again.stream()
        assert (await wire.reply("resources/subscribe", {})).headers["mcp-session-id"] == "S2"
        assert await waiting(listener) == [Change("prompts"), Change("updated", "a://b")]
        again.say(event({"method": "notifications/prompts/list_changed"}))
        assert await next_of(listener) == Change("prompts")


async def test_who_left_is_not_subscribed_again_though_the_server_never_answered() -> None:
    async with in_session() as (client, wire, start):
        listener = await subscribed(client, wire, start, "a://b", "a://c")
        await listener.__aexit__(None, None, None)  # the server is silent
        call = start(client.call_tool, "book")
        await wire.lose()
        await wire.finish(call)


async def test_a_handler_of_changes_that_fails_ends_nothing() -> None:
    def fails(change: Change) -> None:
        raise RuntimeError(f"a bug of the user's: {change}")

    async with in_session(on_change=fails) as (client, wire, start):
        listener = client.listen(tools=True)
        await listener.__aenter__()
        call = start(client.call_tool, "book")
        await wire.lose()
        await wire.finish(call)
        assert await waiting(listener) == [Change("tools")]


async def test_streams_that_end_as_soon_as_they_are_acknowledged_are_opened_less_and_less_often() -> None:
    async with modern_http() as (client, wire, start):
        listener = client.listen(tools=True)
        entered = start(listener.__aenter__)
        opened = []
        with trio.move_on_after(120):
            while len(opened) < 1000:
                post = await stream_of(wire)
                opened.append(post.at)
                post.break_off()
        await entered.result()
        assert 5 < len(opened) < 20
