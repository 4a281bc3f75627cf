"""Listening on through lost streams and lost sessions, over HTTP."""

from __future__ import annotations

import pytest
import trio
from listening import next_of, subscribed, waiting
from scripted import said
from scripted_http import Exchange, HttpWire, event, http_conversation, in_session, modern_http

from trio_mcp.client import Change
from trio_mcp.protocol.meta import SUBSCRIPTION_ID


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
        await wire.reply("tools/call", said("booked"))
        await call.result()


async def test_a_handler_of_changes_that_fails_ends_nothing() -> None:
    def fails(change: Change) -> None:
        raise RuntimeError(f"a bug of the user's: {change}")

    async with in_session(on_change=fails) as (client, wire, start):
        listener = client.listen(tools=True)
        await listener.__aenter__()
        call = start(client.call_tool, "book")
        await wire.lose()
        await wire.reply("tools/call", said("booked"))
        await call.result()
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
