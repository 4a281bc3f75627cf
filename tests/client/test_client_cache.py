"""What a client keeps of a server's answers, for how long, and for whom (M-CACHE-2c)."""

from __future__ import annotations

from typing import Any

import eras
import pytest
import trio
from scripted import Json, conversation
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp.client import Change, ResponseCache
from trio_mcp.client.cache import CacheView
from trio_mcp.client.target import cache_view
from trio_mcp.errors import PeerError
from trio_mcp.protocol.meta import SUBSCRIPTION_ID
from trio_mcp.types import ClientCapabilities, ListToolsResult, ReadResourceResult

NOBODY = ClientCapabilities()


def view(cache: ResponseCache, server: object = "s", principal: object = "ada") -> CacheView:
    return CacheView(cache, server, principal)


def tools(*names: str, ttl: float = 60, scope: str = "private", cursor: str | None = None) -> Json:
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    more = {} if cursor is None else {"nextCursor": cursor}
    return {"tools": listed, "ttlMs": int(ttl * 1000), "cacheScope": scope, **more}


def listed(*names: str, **more: Any) -> ListToolsResult:
    return ListToolsResult.model_validate(tools(*names, **more))


def read(text: str = "on", ttl: float = 60) -> Json:
    return {"contents": [{"uri": "a://b", "text": text}], "ttlMs": int(ttl * 1000), "cacheScope": "private"}


async def asked(client: Any, wire: Any, start: Any, *answers: Json) -> list[str]:
    """The names of the tools that are listed; the server is asked exactly as often as there are answers."""
    listing = start(client.list_tools)
    for answer in answers:
        await wire.respond(await wire.request("tools/list"), answer)
    return [tool.name for tool in await listing.result()]


# time


async def test_an_answer_is_kept_for_as_long_as_the_server_allows(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern, cache=view(ResponseCache())) as (client, wire, start):
        assert await asked(client, wire, start, tools("a")) == ["a"]
        await trio.sleep(59)
        assert await asked(client, wire, start) == ["a"]
        await trio.sleep(2)
        assert await asked(client, wire, start, tools("b")) == ["b"]


@pytest.mark.parametrize("ttl", [0, -5, None])
async def test_an_answer_without_a_time_is_not_kept(ttl: float | None) -> None:
    answer = {name: value for name, value in tools("a", ttl=ttl or 0).items() if ttl is not None or name != "ttlMs"}
    async with conversation(eras.modern, cache=view(ResponseCache())) as (client, wire, start):
        await asked(client, wire, start, answer)
        await asked(client, wire, start, answer)


async def test_a_server_of_the_handshake_era_has_no_times_to_give() -> None:
    async with conversation(eras.legacy, cache=view(ResponseCache())) as (client, wire, start):
        await asked(client, wire, start, tools("a"))
        await asked(client, wire, start, tools("a"))


async def test_what_a_caller_does_to_an_answer_is_not_done_to_what_is_kept() -> None:
    cache = ResponseCache()
    mine = listed("a")
    view(cache).store("tools/list", None, mine, 0)
    mine.tools.clear()
    for _ in range(2):
        found = view(cache).find("tools/list", None)
        assert isinstance(found, ListToolsResult)
        assert [tool.name for tool in found.tools] == ["a"]
        found.tools.clear()


async def test_without_a_cache_nothing_is_kept() -> None:
    async with conversation(eras.modern) as (client, wire, start):
        await asked(client, wire, start, tools("a"))
        await asked(client, wire, start, tools("a"))


async def test_nothing_is_kept_longer_than_the_cache_allows(autojump_clock: MockClock) -> None:
    cache = ResponseCache(max_ttl=10)
    view(cache).store("tools/list", None, listed("a", ttl=10**9), 0)
    await trio.sleep(11)
    assert view(cache).find("tools/list", None) is None


async def test_a_time_that_no_clock_can_hold_is_the_longest_that_the_cache_allows(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern, cache=view(ResponseCache(max_ttl=10))) as (client, wire, start):
        assert await asked(client, wire, start, {**tools("a"), "ttlMs": 10**318}) == ["a"]
        assert await asked(client, wire, start) == ["a"]
        await trio.sleep(11)
        assert await asked(client, wire, start, tools("b")) == ["b"]


async def test_pages_age_separately(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern, cache=view(ResponseCache())) as (client, wire, start):
        await asked(client, wire, start, tools("a", cursor="c", ttl=100), tools("b", ttl=10))
        await trio.sleep(11)
        assert await asked(client, wire, start, tools("new")) == ["a", "new"]


async def test_a_cursor_that_is_refused_drops_all_pages_and_the_list_is_read_anew(autojump_clock: MockClock) -> None:
    async with conversation(eras.modern, cache=view(ResponseCache())) as (client, wire, start):
        await asked(client, wire, start, tools("a", cursor="c", ttl=100), tools("b", ttl=10))
        await trio.sleep(11)
        listing = start(client.list_tools)
        request = await wire.request("tools/list")
        assert request["params"]["cursor"] == "c"
        await wire.fail(request, -32602)
        request = await wire.request("tools/list")
        assert "cursor" not in request["params"]
        await wire.respond(request, tools("anew"))
        assert [tool.name for tool in await listing.result()] == ["anew"]
        items = client.iter_tools()
        assert (await items.__anext__()).name == "anew"  # which is kept again
        await items.aclose()


async def test_a_cursor_that_is_refused_again_is_the_error_of_the_server(autojump_clock: MockClock) -> None:
    kept = view(ResponseCache())
    async with conversation(eras.modern, cache=kept) as (client, wire, start):
        await asked(client, wire, start, tools("a", cursor="c"), tools("b", cursor="d"), tools("c", ttl=0))
        listing = start(client.list_tools)
        await wire.fail(await wire.request("tools/list"), -32602, "old cursor")
        request = await wire.request("tools/list")
        kept.store("tools/list", "c", listed("b", cursor="d"), kept.generation())  # by another reader
        await wire.respond(request, tools("a", cursor="c"))
        await wire.fail(await wire.request("tools/list"), -32602, "old cursor")
        with pytest.raises(PeerError, match="old cursor"):
            await listing.result()


async def test_a_cursor_that_is_refused_in_an_iteration_is_an_error_and_drops_all_pages(
    autojump_clock: MockClock,
) -> None:
    """What was given out already cannot be taken back."""
    async with conversation(eras.modern, cache=view(ResponseCache())) as (client, wire, start):
        await asked(client, wire, start, tools("a", cursor="c", ttl=100), tools("b", ttl=10))
        await trio.sleep(11)
        items = client.iter_tools()
        await items.__anext__()
        following = start(items.__anext__)
        await wire.fail(await wire.request("tools/list"), -32602, "old cursor")
        with pytest.raises(PeerError, match="old cursor"):
            await following.result()
        await asked(client, wire, start, tools("anew"))


# what


async def test_a_resource_is_kept_by_its_uri() -> None:
    async with conversation(eras.modern, cache=view(ResponseCache())) as (client, wire, start):
        call = start(client.read_resource, "a://b")
        await wire.respond(await wire.request("resources/read"), read())
        first = await call.result()
        assert await client.read_resource("a://b") == first
        start(client.read_resource, "a://c")
        await wire.request("resources/read")


async def test_what_took_a_round_is_not_kept() -> None:
    async with conversation(eras.modern, cache=view(ResponseCache())) as (client, wire, start):
        for _ in range(2):
            call = start(client.read_resource, "a://b")
            await wire.respond(
                await wire.request("resources/read"), {"resultType": "input_required", "requestState": "s"}
            )
            await wire.respond(await wire.request("resources/read"), read())
            await call.result()


async def test_what_was_asked_for_with_more_meta_is_neither_kept_nor_found() -> None:
    async with conversation(eras.modern, cache=view(ResponseCache())) as (client, wire, start):
        for meta in ({"x/y": 1}, None, {"x/y": 1}):
            call = start(client.read_resource, "a://b", meta=meta)
            await wire.respond(await wire.request("resources/read"), read())
            await call.result()


async def test_a_ping_is_always_sent() -> None:
    async with conversation(eras.modern, cache=view(ResponseCache())) as (client, wire, start):
        for _ in range(2):
            ping = start(client.ping)
            await eras.modern(wire)
            await ping.result()


# for whom


@pytest.mark.parametrize(
    ("scope", "server", "principal", "found"),
    [
        ("private", "s", "ada", True),
        ("private", "s", "bob", False),
        ("private", "other", "ada", False),
        ("public", "s", "bob", True),
        ("public", "other", "ada", False),
    ],
)
async def test_a_private_answer_never_crosses_principals_and_none_crosses_servers(
    scope: str, server: str, principal: str, found: bool
) -> None:
    cache = ResponseCache()
    view(cache).store("tools/list", None, listed("a", scope=scope), view(cache).generation())
    assert (view(cache, server, principal).find("tools/list", None) is not None) == found


async def test_an_answer_without_a_scope_is_private() -> None:
    cache = ResponseCache()
    answer = listed("a").model_copy(update={"cache_scope": None})
    view(cache).store("tools/list", None, answer, view(cache).generation())
    assert view(cache, principal="bob").find("tools/list", None) is None
    assert view(cache).find("tools/list", None) == answer


async def test_an_answer_that_became_private_is_public_no_more() -> None:
    cache = ResponseCache()
    for scope in ("public", "private"):
        view(cache).store("tools/list", None, listed("a", scope=scope), view(cache).generation())
    assert view(cache, principal="bob").find("tools/list", None) is None


def seen_by(cache: ResponseCache, target: object, *, principal: str | None = None, headers: object = None) -> CacheView:
    found = cache_view(cache, target, principal, headers, NOBODY)
    assert found is not None
    return found


async def test_clients_of_one_url_share_what_is_private_only_as_the_same_principal() -> None:
    cache = ResponseCache()
    url = "http://x/mcp"
    ada = seen_by(cache, url, headers={"Authorization": "Bearer a"})
    ada.store("tools/list", None, listed("a"), ada.generation())
    assert seen_by(cache, url, headers={"authorization": "Bearer a"}).find("tools/list", None) is not None
    for other in (
        seen_by(cache, url, headers={"authorization": "Bearer b"}),
        seen_by(cache, url),
        seen_by(cache, url, principal="ada"),
        seen_by(cache, "http://y/mcp", headers={"authorization": "Bearer a"}),
    ):
        assert other.find("tools/list", None) is None
    assert "Bearer" not in repr(ada)


async def test_clients_that_need_different_capabilities_share_nothing() -> None:
    cache = ResponseCache()
    one = seen_by(cache, "http://x/mcp")
    one.store("tools/list", None, listed("a", scope="public"), one.generation())
    roots = ClientCapabilities.model_validate({"roots": {}})
    other = cache_view(cache, "http://x/mcp", None, None, roots)
    assert other is not None
    assert other.find("tools/list", None) is None


async def test_a_command_and_a_server_object_are_another_server_for_each_client() -> None:
    cache = ResponseCache()
    for target in (["python", "server.py"], object()):
        one = seen_by(cache, target)
        one.store("tools/list", None, listed("a", scope="public"), one.generation())
        assert one.find("tools/list", None) is not None
        assert seen_by(cache, target).find("tools/list", None) is None


# changes


@pytest.mark.parametrize(
    ("change", "dropped"),
    [
        (Change("tools"), {"tools/list"}),
        (Change("prompts"), {"prompts/list"}),
        (Change("resources"), {"resources/list", "resources/templates/list"}),
        (Change("updated", "a://b"), {"resources/read"}),
        (Change("updated", "a://b/c"), {"resources/read"}),
        (Change("updated", "a://bc"), set()),
    ],
    ids=["tools", "prompts", "resources", "itself", "a part", "another"],
)
async def test_what_changed_is_dropped_and_nothing_else(change: Change, dropped: set[str]) -> None:
    cache = ResponseCache()
    mine, other = view(cache), view(cache, "other")
    async with conversation(eras.legacy, cache=mine) as (client, wire, _start):
        lists = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
        answers = [(method, None) for method in lists] + [("resources/read", "a://b")]
        for method, what in answers:
            for each in (mine, other):
                each.store(method, what, ReadResourceResult.model_validate(read()), each.generation())
        if change.uri is None:
            await wire.notify(f"notifications/{change.kind}/list_changed", {})
        else:
            await wire.notify("notifications/resources/updated", {"uri": change.uri})
        await wait_all_tasks_blocked()
        assert {method for method, what in answers if mine.find(method, what) is None} == dropped
        assert all(other.find(method, what) for method, what in answers)
        assert client is not None


async def test_a_change_on_a_stream_drops_what_is_kept_before_the_listener_hears_of_it() -> None:
    mine = view(ResponseCache())
    async with conversation(eras.modern, cache=mine) as (client, wire, start):
        await asked(client, wire, start, tools("a"))
        listener = client.listen(tools=True)
        entered = start(listener.__aenter__)
        request = await wire.request("subscriptions/listen")
        meta = {"_meta": {SUBSCRIPTION_ID: request["id"]}}
        await wire.notify(
            "notifications/subscriptions/acknowledged", {"notifications": {"toolsListChanged": True}, **meta}
        )
        await entered.result()
        await wire.notify("notifications/tools/list_changed", meta)
        await listener.__anext__()
        assert await asked(client, wire, start, tools("b")) == ["b"]


async def test_an_answer_that_was_asked_for_before_the_change_is_not_kept() -> None:
    async with conversation(eras.legacy, cache=view(ResponseCache())) as (client, wire, start):
        listing = start(client.list_tools)
        request = await wire.request("tools/list")
        await wire.notify("notifications/tools/list_changed", {})
        await wire.respond(request, tools("old"))
        await listing.result()
        assert await asked(client, wire, start, tools("new")) == ["new"]


# limits


async def test_the_cache_is_bounded_and_forgets_what_was_not_used_for_longest() -> None:
    cache = ResponseCache(max_entries=2)
    mine = view(cache)
    for uri in ("1", "2"):
        mine.store("resources/read", uri, ReadResourceResult.model_validate(read()), mine.generation())
    assert mine.find("resources/read", "1")
    mine.store("resources/read", "3", ReadResourceResult.model_validate(read()), mine.generation())
    assert [mine.find("resources/read", uri) is not None for uri in ("1", "2", "3")] == [True, False, True]
    assert cache.statistics().entries == 2


async def test_the_cache_is_bounded_in_bytes_too() -> None:
    cache = ResponseCache(max_bytes=1000)
    mine = view(cache)
    for uri in "12345":
        mine.store("resources/read", uri, ReadResourceResult.model_validate(read("x" * 300)), mine.generation())
    assert 0 < cache.statistics().bytes <= 1000
    mine.store("resources/read", "big", ReadResourceResult.model_validate(read("x" * 2000)), mine.generation())
    assert mine.find("resources/read", "big") is None
    cache.clear()
    assert (cache.statistics().entries, cache.statistics().bytes) == (0, 0)


def test_what_another_run_kept_is_dropped() -> None:
    """Each run of Trio has a clock of its own, so the times of one mean nothing in another."""
    cache = ResponseCache()

    async def keep() -> None:
        view(cache).store("tools/list", None, listed("a"), view(cache).generation())
        assert view(cache).find("tools/list", None)

    async def look() -> None:
        assert view(cache).find("tools/list", None) is None

    trio.run(keep)
    trio.run(look)
