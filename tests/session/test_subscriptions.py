"""Watching resources and listening for changes, in both shapes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio
from talk import Json, Talk, session_with, talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import CancelReason, Server, ServiceOptions
from trio_mcp.errors import LimitExceeded
from trio_mcp.session import subscriptions
from trio_mcp.session.subscriptions import Subscriber, Subscriptions

UPDATED = "notifications/resources/updated"
TOOLS = "notifications/tools/list_changed"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
ID = "io.modelcontextprotocol/subscriptionId"


@pytest.fixture
def server() -> Server:
    server = Server("watched", options=ServiceOptions(watched=3))
    server.add_resource("file:///a/b", lambda: "")
    server.add_tool(lambda: "", name="first")
    server.add_prompt(lambda: "", name="first")
    return server


async def came(talk: Talk) -> list[tuple[str, str | None]]:
    """The notifications that have come: method and URI."""
    await wait_all_tasks_blocked()
    return [(message["method"], message.get("params", {}).get("uri")) for message in talk.waiting()]


async def subscribe(talk: Talk, *uris: str) -> None:
    for uri in uris:
        assert await talk.result(talk.request("resources/subscribe", {"uri": uri})) == {}


# legacy


@pytest.mark.parametrize("watched", ["file:///a", "file:///a/"])
async def test_an_update_of_a_part_counts_for_the_whole(talk: Talk, server: Server, watched: str) -> None:
    await subscribe(talk, watched)
    server.resource_updated("file:///a/b")
    server.resource_updated("file:///ab")
    assert await came(talk) == [(UPDATED, "file:///a/b")]


async def test_there_is_a_limit_to_what_a_session_watches(talk: Talk) -> None:
    await subscribe(talk, "a:1", "a:2", "a:3", "a:3")
    error = await talk.error(talk.request("resources/subscribe", {"uri": "a:4"}))
    assert error["code"] == -32602
    assert "3 resources" in error["message"]


async def test_long_uris_count_by_their_length(server: Server) -> None:
    wide = server.copy(options=ServiceOptions(watched=1000))
    async with session_with(wide) as talk:
        await subscribe(talk, *[f"a:{number:02}{'x' * 8_000}" for number in range(32)])
        error = await talk.error(talk.request("resources/subscribe", {"uri": f"a:32{'x' * 8_000}"}))
        assert await talk.result(talk.request("resources/unsubscribe", {"uri": f"a:00{'x' * 8_000}"})) == {}
        await subscribe(talk, f"a:32{'x' * 8_000}")
    assert error["code"] == -32602
    assert "262144 characters" in error["message"]


async def test_what_is_watched_no_more_leaves_nothing_behind(talk: Talk) -> None:
    await subscribe(talk, "a:1", "a:2")
    assert await talk.result(talk.request("resources/unsubscribe", {"uri": "a:1"})) == {}
    assert repr(talk.service.subscriptions) == "<Subscriptions subscribers=1 uris=1>"
    talk.session.close(CancelReason.DISCONNECT)
    assert repr(talk.service.subscriptions) == "<Subscriptions subscribers=0 uris=0>"


async def test_an_update_deep_below_is_announced_within_bounds(talk: Talk, server: Server) -> None:
    await subscribe(talk, "file:///")
    server.resource_updated("file:///" + "a/" * 4_000)
    server.resource_updated("a:" + "/" * 7_998)
    assert len(await came(talk)) == 1


async def test_there_is_a_limit_to_what_all_watch_together(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "SUBSCRIPTIONS", subscriptions.SUBSCRIPTIONS._replace(limit=3))
    async with talk_to(server) as talk:
        other = Talk(talk.service)
        await talk.initialize()
        await other.initialize()
        await subscribe(talk, "a:1", "a:2", "a:2")
        await subscribe(other, "a:1")
        error = await other.error(other.request("resources/subscribe", {"uri": "a:3"}))
        refused = await other.error(listen(other, resourceSubscriptions=["a:3"]))
        assert error["code"] == refused["code"] == -32000
        assert subscriptions.SUBSCRIPTIONS.what in error["message"]
        assert await talk.result(talk.request("resources/unsubscribe", {"uri": "a:1"})) == {}
        await subscribe(other, "a:3")
        other.session.close(CancelReason.DISCONNECT)
        await subscribe(talk, "a:4", "a:5")


async def test_without_a_way_to_the_client_each_change_is_kept_once(talk: Talk, server: Server) -> None:
    await subscribe(talk, "file:///a/b")
    talk.session.attach(None)
    for _ in range(3):
        server.resource_updated("file:///a/b")
        server.add_tool(lambda: "", name=f"tool{_}")
        assert await came(talk) == []
    talk.session.attach(talk.outbox)
    assert await came(talk) == [(UPDATED, "file:///a/b"), (TOOLS, None)]


async def test_of_countless_parts_only_what_they_are_parts_of_is_kept(talk: Talk, server: Server) -> None:
    """Three may be watched here, so nine is the most that is kept: six of resources and three of lists."""
    await subscribe(talk, "file:///a", "file:///b/", "file:///c")
    talk.session.attach(None)
    server.remove_tool("first")
    for number in range(500):
        server.resource_updated(f"file:///a/{number}")
        server.resource_updated(f"file:///b/{number}")
    await wait_all_tasks_blocked()
    talk.session.attach(talk.outbox)
    received = await came(talk)
    assert len(received) <= 9
    assert {(TOOLS, None), (UPDATED, "file:///a"), (UPDATED, "file:///b/")} <= {*received}
    assert (UPDATED, "file:///c") not in received


async def test_a_slow_reader_holds_nothing_back_but_his_own(server: Server) -> None:
    async with talk_to(server) as talk:
        narrow = type(talk.outbox)(1)
        await talk.initialize()
        await subscribe(talk, "file:///a/b")
        talk.session.attach(narrow)
        server.remove_tool("first")
        await wait_all_tasks_blocked()
        for _ in range(20):
            server.resource_updated("file:///a/b")
            await wait_all_tasks_blocked()
        assert len(narrow.items) == 1
        assert [envelope.message.method for envelope in await narrow.take()] == [TOOLS]
        await wait_all_tasks_blocked()
        assert [envelope.message.method for envelope in await narrow.take()] == [UPDATED]


# the modern era


def listen(talk: Talk, **wanted: object) -> int:
    return talk.ask("subscriptions/listen", notifications=wanted)


async def acknowledged(talk: Talk, request: int) -> Json:
    params = await talk.notification(ACKNOWLEDGED)
    assert params["_meta"] == {ID: request}
    return params["notifications"]


async def test_a_listener_first_learns_what_is_honoured(server: Server) -> None:
    async with talk_to(server) as talk:
        request = listen(talk, toolsListChanged=True, promptsListChanged=False, resourceSubscriptions=["file:///a/b"])
        assert await acknowledged(talk, request) == {"toolsListChanged": True, "resourceSubscriptions": ["file:///a/b"]}
        await talk.silence()


async def test_what_the_server_does_not_offer_is_not_honoured() -> None:
    async with talk_to(Server("bare")) as talk:
        request = listen(talk, toolsListChanged=True, promptsListChanged=True, resourceSubscriptions=["file:///a/b"])
        assert await acknowledged(talk, request) == {"toolsListChanged": True}


async def test_only_requested_changes_are_sent_and_each_message_names_its_stream(server: Server) -> None:
    async with talk_to(server) as talk:
        one = listen(talk, toolsListChanged=True)
        await acknowledged(talk, one)
        two = listen(talk, resourceSubscriptions=["file:///a/b"])
        await acknowledged(talk, two)
        server.remove_prompt("first")
        server.remove_tool("first")
        server.resource_updated("file:///a/b")
        await wait_all_tasks_blocked()
        received = {message["params"]["_meta"][ID]: message["method"] for message in talk.waiting()}
    assert received == {one: TOOLS, two: UPDATED}


async def test_shutdown_ends_a_stream_with_its_result(server: Server) -> None:
    """On a shared channel a notification says which one ends; then comes the result (protocol.md 7, 1)."""
    async with talk_to(server) as talk:
        request = listen(talk, toolsListChanged=True)
        await acknowledged(talk, request)
        with trio.fail_after(5):
            await talk.service.drain(60)
        assert (await talk.notification("notifications/cancelled"))["requestId"] == request
        result = await talk.result(request)
    assert result["resultType"] == "complete"
    assert result["_meta"][ID] == request


@pytest.mark.parametrize(("uris", "named"), [(["nowhere"], "nowhere"), (["a:1", "a:2", "a:3", "a:4"], "3 resources")])
async def test_a_filter_that_cannot_be_served_is_refused(server: Server, uris: list[str], named: str) -> None:
    async with talk_to(server) as talk:
        error = await talk.error(listen(talk, resourceSubscriptions=uris))
        assert talk.service.supervisor.actors == ()
    assert error["code"] == -32602
    assert named in error["message"]


async def test_a_filter_is_required(server: Server) -> None:
    async with talk_to(server) as talk:
        error = await talk.error(talk.ask("subscriptions/listen"))
    assert error["code"] == -32602
    assert "notifications" in error["message"]


async def test_a_modern_client_cannot_subscribe_the_old_way_nor_an_old_one_listen(server: Server) -> None:
    async with talk_to(server) as talk:
        assert (await talk.error(talk.ask("resources/subscribe", uri="file:///a/b")))["code"] == -32601
        await talk.initialize()
        error = await talk.error(talk.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    assert error["code"] == -32601


async def test_a_stream_that_is_not_read_does_not_hold_up_the_end(server: Server) -> None:
    async with server.open_service() as service:
        unread = subscriptions.Subscriber([], limit=0, on_change=lambda: None)
        with service.subscriptions.open_stream(unread), trio.fail_after(1):
            await service.drain(0)


async def runs_on(_actor: object) -> None:
    await trio.sleep_forever()


async def test_the_streams_have_their_time_within_that_of_the_calls(server: Server) -> None:
    async with server.open_service() as service:
        unread = subscriptions.Subscriber([], limit=0, on_change=lambda: None)
        service.supervisor.start(runs_on, lambda _actor, _outcome: None)
        with service.subscriptions.open_stream(unread):
            await service.drain(10)
        assert trio.current_time() == pytest.approx(10)


# followers


class Following:
    """A follower that takes some URIs only."""

    def __init__(self, *refused: str) -> None:
        self.refused, self.known = refused, Counter[tuple[str, Any]]()

    def watch(self, uri: str, caller: Any, /) -> None:
        if uri in self.refused:
            raise LimitExceeded("no more")
        self.known[uri, caller] += 1

    def unwatch(self, uri: str, caller: Any, /) -> None:
        self.known[uri, caller] -= 1

    @property
    def counted(self) -> dict[tuple[str, Any], int]:
        return dict(+self.known)


async def test_followers_know_each_subscription_while_it_lasts() -> None:
    found, first = Subscriptions(), Following()
    found.followers = [first]
    alice, bob = (Subscriber((), 9, lambda: None, caller) for caller in ("alice", "bob"))
    alice.subscribe("a:1")
    found.add(alice)
    found.add(bob)
    found.subscribe(bob, "a:1")
    assert first.counted == {("a:1", "alice"): 1, ("a:1", "bob"): 1}
    found.unsubscribe(bob, "a:1")
    found.discard(alice)
    assert first.counted == {}


async def test_a_subscription_that_a_follower_refuses_leaves_nothing_behind() -> None:
    found, first, second = Subscriptions(), Following(), Following("a:2")
    found.followers = [first, second]
    both = Subscriber((), 9, lambda: None)
    both.subscribe("a:1")
    both.subscribe("a:2")
    both.task_ids = ("task",)
    with pytest.raises(LimitExceeded):
        found.add(both)
    single = Subscriber((), 9, lambda: None)
    found.add(single)
    with pytest.raises(LimitExceeded):
        found.subscribe(single, "a:2")
    found.discard(single)
    assert (first.counted, second.counted, single.uris, len(found)) == ({}, {}, {}, 0)
    assert "uris=0" in repr(found)
