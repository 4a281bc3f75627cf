"""What a client keeps of a server's answers, for how long, and for whom (M-CACHE-2c)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from listening import begun, notify
from scripted import Json, Start, Wire, answered, as_legacy, as_modern, conversation, interim, list_tools
from trio.testing import wait_all_tasks_blocked

from trio_mcp.client import Change, Client, ResponseCache
from trio_mcp.client.cache import CacheView
from trio_mcp.client.target import cache_view
from trio_mcp.errors import PeerError
from trio_mcp.types import ClientCapabilities, ListToolsResult, ReadResourceResult


def view(cache: ResponseCache, server: object = "s", principal: object = "ada") -> CacheView:
    return CacheView(cache, server, principal)


def tools(*names: str, ttl: float = 60, scope: str = "private", cursor: str | None = None) -> Json:
    listed = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    more = {} if cursor is None else {"nextCursor": cursor}
    return {"tools": listed, "ttlMs": int(ttl * 1000), "cacheScope": scope, **more}


def listed(*names: str, **more: Any) -> ListToolsResult:
    return ListToolsResult.model_validate(tools(*names, **more))


def keep(mine: CacheView, result: Any = None, method: str = "tools/list", what: str | None = None) -> None:
    mine.store(method, what, listed("a") if result is None else result, mine.ticket())


def kept(mine: CacheView, method: str = "tools/list", what: str | None = None) -> bool:
    return mine.find(method, what) is not None


def read(text: str = "on") -> Json:
    return {"contents": [{"uri": "a://b", "text": text}], "ttlMs": 60_000, "cacheScope": "private"}


def contents(text: str = "on") -> ReadResourceResult:
    return ReadResourceResult.model_validate(read(text))


# time


async def test_an_answer_is_kept_for_as_long_as_the_server_allows() -> None:
    async with conversation(as_modern, cache=view(ResponseCache())) as (client, wire, start):
        assert await list_tools(client, wire, start, tools("a")) == ["a"]
        await trio.sleep(59)
        assert await list_tools(client, wire, start) == ["a"]
        await trio.sleep(2)
        assert await list_tools(client, wire, start, tools("b")) == ["b"]


WITHOUT_TIME = {name: value for name, value in tools("a").items() if name != "ttlMs"}


@pytest.mark.parametrize(
    ("opening", "cached", "answer"),
    [
        (as_modern, True, tools("a", ttl=0)),
        (as_modern, True, tools("a", ttl=-5)),
        (as_modern, True, WITHOUT_TIME),
        (as_legacy, True, tools("a")),
        (as_modern, False, tools("a")),
    ],
    ids=["no time", "a negative time", "none named", "a legacy server, which has none to give", "without a cache"],
)
async def test_an_answer_without_a_time_is_not_kept(opening: Any, cached: bool, answer: Json) -> None:
    options = {"cache": view(ResponseCache())} if cached else {}
    async with conversation(opening, **options) as (client, wire, start):
        for _ in range(2):
            await list_tools(client, wire, start, answer)


async def test_what_a_caller_does_to_an_answer_is_not_done_to_what_is_kept() -> None:
    cache = ResponseCache()
    mine = listed("a")
    view(cache).store("tools/list", None, mine, view(cache).ticket())
    mine.tools.clear()
    for _ in range(2):
        found = view(cache).find("tools/list", None)
        assert isinstance(found, ListToolsResult)
        assert [tool.name for tool in found.tools] == ["a"]
        found.tools.clear()


@pytest.mark.parametrize("ttl", [10**12, 10**318], ids=["long", "more than a clock can hold"])
async def test_nothing_is_kept_longer_than_the_cache_allows(ttl: int) -> None:
    async with conversation(as_modern, cache=view(ResponseCache(max_ttl=10))) as (client, wire, start):
        assert await list_tools(client, wire, start, {**tools("a"), "ttlMs": ttl}) == ["a"]
        assert await list_tools(client, wire, start) == ["a"]
        await trio.sleep(11)
        assert await list_tools(client, wire, start, tools("b")) == ["b"]


async def test_pages_age_separately() -> None:
    async with second_page_gone() as (client, wire, start):
        assert await list_tools(client, wire, start, tools("new")) == ["a", "new"]


@asynccontextmanager
async def second_page_gone() -> AsyncIterator[tuple[Client, Wire, Start]]:
    """A conversation in which the first page of a list is still kept, and the second no more."""
    async with conversation(as_modern, cache=view(ResponseCache())) as (client, wire, start):
        await list_tools(client, wire, start, tools("a", cursor="c", ttl=100), tools("b", ttl=10))
        await trio.sleep(11)
        yield client, wire, start


async def test_a_cursor_that_is_refused_drops_all_pages_and_the_list_is_read_again() -> None:
    async with second_page_gone() as (client, wire, start):
        listing = start(client.list_tools)
        assert (await wire.refuse("tools/list", -32602))["params"]["cursor"] == "c"
        assert "cursor" not in (await wire.reply("tools/list", tools("anew")))["params"]
        assert [tool.name for tool in await listing.result()] == ["anew"]
        assert await list_tools(client, wire, start) == ["anew"]  # which is kept again


async def test_a_cursor_that_is_refused_again_is_the_error_of_the_server() -> None:
    mine = view(ResponseCache())
    async with conversation(as_modern, cache=mine) as (client, wire, start):
        await list_tools(client, wire, start, tools("a", cursor="c"), tools("b", cursor="d"), tools("c", ttl=0))
        listing = start(client.list_tools)
        await wire.refuse("tools/list", -32602, "old cursor")
        request = await wire.request("tools/list")
        keep(mine, listed("b", cursor="d"), what="c")  # by another reader
        await wire.respond(request, tools("a", cursor="c"))
        await wire.refuse("tools/list", -32602, "old cursor")
        await listing.fails(PeerError, "old cursor")


async def test_a_cursor_that_is_refused_in_an_iteration_is_an_error_and_drops_all_pages() -> None:
    """What was given out already cannot be taken back."""
    async with second_page_gone() as (client, wire, start):
        items = client.iter_tools()
        await items.__anext__()
        following = start(items.__anext__)
        await wire.refuse("tools/list", -32602, "old cursor")
        await following.fails(PeerError, "old cursor")
        await list_tools(client, wire, start, tools("anew"))


# what


async def test_a_resource_is_kept_by_its_uri() -> None:
    async with conversation(as_modern, cache=view(ResponseCache())) as (client, wire, start):
        _, first = await answered(wire, start(client.read_resource, "a://b"), "resources/read", read())
        assert await client.read_resource("a://b") == first
        start(client.read_resource, "a://c")
        await wire.request("resources/read")


async def test_what_took_a_round_is_not_kept() -> None:
    async with conversation(as_modern, cache=view(ResponseCache())) as (client, wire, start):
        for _ in range(2):
            call = start(client.read_resource, "a://b")
            await wire.reply("resources/read", interim({}, "s"))
            await wire.reply("resources/read", read())
            await call.result()


async def test_what_was_asked_for_with_more_meta_is_neither_kept_nor_found() -> None:
    async with conversation(as_modern, cache=view(ResponseCache())) as (client, wire, start):
        for meta in ({"x/y": 1}, None, {"x/y": 1}):
            await answered(wire, start(client.read_resource, "a://b", meta=meta), "resources/read", read())


async def test_a_ping_is_always_sent() -> None:
    async with conversation(as_modern, cache=view(ResponseCache())) as (client, wire, start):
        for _ in range(2):
            ping = start(client.ping)
            await as_modern(wire)
            await ping.result()


# for whom


URL = "http://x/mcp"
ADA = {"Authorization": "Bearer a"}


def seen_by(
    cache: ResponseCache,
    target: object = URL,
    principal: str | None = None,
    headers: object = None,
    needs: Json | None = None,
) -> CacheView:
    found = cache_view(cache, target, principal, headers, ClientCapabilities.model_validate(needs or {}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("scope", "other", "found"),
    [
        ("private", {"headers": {"authorization": "Bearer a"}}, True),
        ("private", {"headers": {"authorization": "Bearer b"}}, False),
        ("private", {}, False),
        ("private", {"principal": "ada"}, False),
        ("private", {"target": "http://y/mcp", "headers": ADA}, False),
        ("public", {"principal": "bob"}, True),
        ("public", {"target": "http://y/mcp", "headers": ADA}, False),
        ("public", {"needs": {"roots": {}}}, False),
    ],
)
async def test_a_private_answer_is_for_one_principal_one_server_and_its_capabilities(
    scope: str, other: Json, found: bool
) -> None:
    cache = ResponseCache()
    ada = seen_by(cache, headers=ADA)
    keep(ada, listed("a", scope=scope))
    assert kept(seen_by(cache, **other)) == found
    assert "Bearer" not in repr(ada)


async def test_an_answer_without_a_scope_is_private() -> None:
    cache = ResponseCache()
    keep(view(cache), listed("a").model_copy(update={"cache_scope": None}))
    assert (kept(view(cache)), kept(view(cache, principal="bob"))) == (True, False)


async def test_an_answer_that_became_private_is_public_no_more() -> None:
    cache = ResponseCache()
    for scope in ("public", "private"):
        keep(view(cache), listed("a", scope=scope))
    assert not kept(view(cache, principal="bob"))


async def test_a_command_and_a_server_object_are_another_server_for_each_client() -> None:
    cache = ResponseCache()
    for target in (["python", "server.py"], object()):
        one = seen_by(cache, target)
        keep(one, listed("a", scope="public"))
        assert (kept(one), kept(seen_by(cache, target))) == (True, False)


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
    async with conversation(as_legacy, cache=mine) as (_client, wire, _start):
        lists = ("tools/list", "prompts/list", "resources/list", "resources/templates/list")
        answers = [(method, None) for method in lists] + [("resources/read", "a://b")]
        for method, what in answers:
            for each in (mine, other):
                keep(each, contents(), method, what)
        if change.uri is None:
            await wire.notify(f"notifications/{change.kind}/list_changed", {})
        else:
            await wire.notify("notifications/resources/updated", {"uri": change.uri})
        await wait_all_tasks_blocked()
        assert {method for method, what in answers if not kept(mine, method, what)} == dropped
        assert all(kept(other, method, what) for method, what in answers)


async def test_a_change_on_a_stream_drops_what_is_kept_before_the_listener_hears_of_it() -> None:
    async with conversation(as_modern, cache=view(ResponseCache())) as (client, wire, start):
        await list_tools(client, wire, start, tools("a"))
        listener = client.listen(tools=True)
        request = await begun(listener, wire, start)
        await notify(wire, request, "notifications/tools/list_changed")
        await listener.__anext__()
        assert await list_tools(client, wire, start, tools("b")) == ["b"]


async def test_an_answer_that_was_asked_for_before_the_change_is_not_kept() -> None:
    async with conversation(as_legacy, cache=view(ResponseCache())) as (client, wire, start):
        listing = start(client.list_tools)
        request = await wire.request("tools/list")
        await wire.notify("notifications/tools/list_changed", {})
        await wire.respond(request, tools("old"))
        await listing.result()
        assert await list_tools(client, wire, start, tools("new")) == ["new"]


@pytest.mark.parametrize(("server", "is_kept"), [("s", False), ("other", True)])
async def test_a_change_of_another_server_keeps_no_answer_out_of_a_shared_cache(server: str, is_kept: bool) -> None:
    cache = ResponseCache()
    async with conversation(as_modern, cache=view(cache)) as (client, wire, start):
        listing = start(client.list_tools)
        request = await wire.request("tools/list")
        view(cache, server).invalidate("tools/list")
        await wire.respond(request, tools("a"))
        await listing.result()
        assert kept(view(cache)) == is_kept


async def test_a_cleared_cache_keeps_no_answer_that_was_asked_for_before() -> None:
    cache = ResponseCache()
    async with conversation(as_modern, cache=view(cache)) as (client, wire, start):
        listing = start(client.list_tools)
        request = await wire.request("tools/list")
        cache.clear()
        await wire.respond(request, tools("a"))
        await listing.result()
        assert not kept(view(cache))


async def test_an_answer_that_was_asked_for_after_a_change_is_kept_while_an_older_one_is_under_way() -> None:
    mine = view(ResponseCache())
    older = mine.ticket()
    mine.invalidate("tools/list")
    newer = mine.ticket()
    mine.store("tools/list", None, listed("old"), older)
    assert not kept(mine)
    mine.store("tools/list", None, listed("new"), newer)
    assert kept(mine)


# limits


async def test_the_cache_is_bounded_and_forgets_what_was_not_used_for_longest() -> None:
    cache = ResponseCache(max_entries=2)
    mine = view(cache)
    for uri in ("1", "2"):
        keep(mine, contents(), "resources/read", uri)
    assert kept(mine, "resources/read", "1")
    keep(mine, contents(), "resources/read", "3")
    assert [kept(mine, "resources/read", uri) for uri in ("1", "2", "3")] == [True, False, True]
    assert cache.statistics().entries == 2


async def test_the_cache_is_bounded_in_bytes_too() -> None:
    cache = ResponseCache(max_bytes=1000)
    mine = view(cache)
    for uri in "12345":
        keep(mine, contents("x" * 300), "resources/read", uri)
    assert 0 < cache.statistics().bytes <= 1000
    keep(mine, contents("x" * 2000), "resources/read", "big")
    assert not kept(mine, "resources/read", "big")
    cache.clear()
    assert (cache.statistics().entries, cache.statistics().bytes) == (0, 0)


def test_what_another_run_kept_is_dropped() -> None:
    """Each run of Trio has a new clock, so the times of one mean nothing in another."""
    mine = view(ResponseCache())

    async def in_one_run() -> bool:
        keep(mine)
        return kept(mine)

    async def in_another() -> bool:
        return kept(mine)

    assert (trio.run(in_one_run), trio.run(in_another)) == (True, False)
