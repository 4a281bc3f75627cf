"""A client's typed calls beside those of tools: prompts, resources, completion, lists, log levels, subscriptions, roots."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from naming import naming
from scripted import FOLLOWS_TASKS, HINTS, OFFERS, Json, answered, as_legacy, as_modern, conversation
from trio.testing import wait_all_tasks_blocked
from wire_terms import CLIENT_CAPABILITIES, LOG_LEVEL

from trio_mcp import Client, ClientGroup, Server
from trio_mcp.client import lists
from trio_mcp.errors import CapabilityError, LimitExceeded, RequestTimeout
from trio_mcp.types import PromptReference, ResourceTemplateReference, TextContent, TextResourceContents

LISTS = {
    "tools": ("tools/list", "tools", {"name": "a", "inputSchema": {"type": "object"}}),
    "prompts": ("prompts/list", "prompts", {"name": "a"}),
    "resources": ("resources/list", "resources", {"name": "a", "uri": "a://"}),
    "resource_templates": ("resources/templates/list", "resourceTemplates", {"name": "a", "uriTemplate": "a://{b}"}),
}


def named(item: Json, name: str) -> Json:
    return {**item, "name": name}


async def test_a_prompt_is_rendered_with_its_arguments_if_it_has_any(opening: Any) -> None:
    message = {"role": "user", "content": {"type": "text", "text": "Look: 1 + 1"}}
    async with conversation(opening) as (client, wire, start):
        call = start(client.get_prompt, "review", {"code": "1 + 1"}, meta={"x/y": 1})
        request, result = await answered(wire, call, "prompts/get", {"description": "A review", "messages": [message]})
        assert (request["params"]["name"], request["params"]["arguments"]) == ("review", {"code": "1 + 1"})
        assert request["params"]["_meta"]["x/y"] == 1
        assert result.description == "A review"
        assert result.messages[0].content == TextContent(text="Look: 1 + 1")
        start(client.get_prompt, "hello")
        assert "arguments" not in (await wire.request("prompts/get"))["params"]


async def test_a_resource_is_read(opening: Any) -> None:
    page = {"contents": [{"uri": "config://app", "text": "on"}], **HINTS}
    async with conversation(opening) as (client, wire, start):
        call = start(client.read_resource, "config://app")
        request, result = await answered(wire, call, "resources/read", page)
        assert request["params"]["uri"] == "config://app"
        assert result.contents == [TextResourceContents(uri="config://app", text="on")]


async def test_a_completion_says_what_is_typed_and_what_is_settled(opening: Any) -> None:
    async with conversation(opening) as (client, wire, start):
        ref = PromptReference(name="review")
        call = start(client.complete, ref, "language", "py", context={"code": "x"})
        request = await wire.request("completion/complete")
        params = {name: value for name, value in request["params"].items() if name != "_meta"}
        assert params == {
            "ref": {"type": "ref/prompt", "name": "review"},
            "argument": {"name": "language", "value": "py"},
            "context": {"arguments": {"code": "x"}},
        }
        await wire.respond(request, {"completion": {"values": ["python"], "total": 1, "hasMore": False}})
        assert (await call.result()).values == ["python"]
        start(client.complete, ResourceTemplateReference(uri="a://{b}"), "b", "")
        request = await wire.request("completion/complete")
        assert request["params"]["ref"] == {"type": "ref/resource", "uri": "a://{b}"}
        assert "context" not in request["params"]


@pytest.mark.parametrize(
    ("method", "call", "args", "named"),
    [
        ("tools/call", "call_tool", ["book"], "book"),
        ("prompts/get", "get_prompt", ["review"], "review"),
        ("resources/read", "read_resource", ["a://b"], "a://b"),
        ("completion/complete", "complete", [PromptReference(name="p"), "a", ""], "completion/complete"),
        ("tools/list", "list_tools", [], "tools/list"),
        (None, "ping", [], ""),
    ],
)
async def test_each_request_has_a_time_limit_and_is_cancelled_at_the_server_beyond_it(
    opening: Any, method: str | None, call: str, args: list[Any], named: str
) -> None:
    async with conversation(opening) as (client, wire, start):
        before = trio.current_time()
        pending = start(getattr(client, call), *args, timeout=3)
        request = await wire.receive()
        assert method in (request["method"], None)
        assert (await wire.notification("notifications/cancelled"))["requestId"] == request["id"]
        await pending.fails(RequestTimeout, naming(named, "3 seconds"))
        assert trio.current_time() - before == 3


@pytest.mark.parametrize("what", list(LISTS))
async def test_each_list_is_read_through_all_its_pages(opening: Any, what: str) -> None:
    method, member, item = LISTS[what]
    async with conversation(opening) as (client, wire, start):
        listing = start(getattr(client, f"list_{what}"))
        for cursor, following, name in ((None, "", "one"), ("", "next", "two"), ("next", None, "three")):
            request = await wire.request(method)
            assert request.get("params", {}).get("cursor") == cursor  # the empty string is a cursor too (L-PAG-1b)
            more = {} if following is None else {"nextCursor": following}
            await wire.respond(request, {member: [named(item, name)], **HINTS, **more})
        assert [item.name for item in await listing.result()] == ["one", "two", "three"]


@pytest.mark.parametrize("what", list(LISTS))
async def test_an_iterator_asks_for_a_page_when_those_before_are_used_up(opening: Any, what: str) -> None:
    method, member, item = LISTS[what]
    async with conversation(opening) as (client, wire, start):
        items = getattr(client, f"iter_{what}")()
        first = start(items.__anext__)
        page = [named(item, "one"), named(item, "two")]
        await wire.reply(method, {member: page, "nextCursor": "c", **HINTS})
        assert (await first.result()).name == "one"
        assert (await items.__anext__()).name == "two"
        await wait_all_tasks_blocked()
        third = start(items.__anext__)
        request = await wire.request(method)
        assert request["params"]["cursor"] == "c"
        await wire.respond(request, {member: [named(item, "three")], **HINTS})
        assert (await third.result()).name == "three"
        with pytest.raises(StopAsyncIteration):
            await items.__anext__()


async def test_a_list_has_a_limit_of_pages_and_one_of_items(opening: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_PAGES", 3)
    monkeypatch.setattr(lists, "MAX_ITEMS", 3)
    async with conversation(opening) as (client, wire, start):
        listing = start(client.list_prompts)
        for number in range(3):
            await wire.reply("prompts/list", {"prompts": [], "nextCursor": str(number), **HINTS})
        await listing.fails(LimitExceeded, naming("3 pages"))
        listing = start(client.list_prompts)
        await wire.reply("prompts/list", {"prompts": [{"name": str(number)} for number in range(4)], **HINTS})
        await listing.fails(LimitExceeded, naming("3 items"))


async def test_pages_that_are_held_at_once_have_a_limit_of_bytes(opening: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "MAX_LIST", 1000)
    async with conversation(opening) as (client, wire, start):
        listing = start(client.list_prompts)
        for number in range(3):
            page = [{"name": f"{number}", "description": "x" * 600}]
            await wire.reply("prompts/list", {"prompts": page, "nextCursor": str(number), **HINTS})
        await listing.fails(LimitExceeded, naming("1000 bytes"))


@pytest.mark.parametrize("opening", [as_legacy, as_modern])
@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ([("a", ""), ("a", "")], "a"),
        ([("a", ""), ("b", "")], "ab"),
        ([("a", "x"), ("b", "y"), ("c", "x")], "abc"),
        ([("a", "x"), ("b", "x")], "ab"),
    ],
    ids=["cursors are ignored", "an empty cursor is followed once", "a circle", "the second page names itself"],
)
async def test_a_cursor_that_came_before_ends_the_list_with_a_warning(
    opening: Any, pages: list[tuple[str, str]], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with conversation(opening) as (client, wire, start):
        listing = start(client.list_prompts)
        for name, cursor in pages:
            await wire.reply("prompts/list", {"prompts": [{"name": name}], "nextCursor": cursor, **HINTS})
        assert "".join([prompt.name for prompt in await listing.result()]) == expected
    assert "cursor" in caplog.text


@pytest.mark.parametrize("opening", [as_legacy, as_modern])
async def test_an_unreadable_item_of_a_list_is_dropped_with_one_warning(
    opening: Any, caplog: pytest.LogCaptureFixture
) -> None:
    page = {"prompts": [{"name": "good"}, {"name": "bad", "arguments": 5}], **HINTS}
    async with conversation(opening) as (client, wire, start):
        assert client.dropped == ()
        for _ in range(2):
            listing = start(client.list_prompts)
            await wire.reply("prompts/list", page)
            assert [prompt.name for prompt in await listing.result()] == ["good"]
        assert [(each.kind, each.name) for each in client.dropped] == [("prompt", "bad")]
    assert caplog.text.count("bad") == 1


async def test_a_log_level_is_set_by_a_request_or_said_with_each() -> None:
    async with conversation(partial(as_legacy, capabilities={**OFFERS, "logging": {}})) as (client, wire, start):
        request, _ = await answered(wire, start(client.set_log_level, "error"), "logging/setLevel", {})
        assert request["params"]["level"] == "error"
    async with conversation(as_modern) as (client, wire, start):
        await client.set_log_level("error")
        start(client.list_tools)
        assert (await wire.request("tools/list"))["params"]["_meta"][LOG_LEVEL] == "error"


async def test_a_resource_is_subscribed_to_until_the_last_who_did_takes_it_back() -> None:
    async with conversation(as_legacy) as (client, wire, start):
        for _ in range(2):
            request, _ = await answered(wire, start(client.subscribe, "a://b"), "resources/subscribe", {})
            assert request["params"]["uri"] == "a://b"
        await client.unsubscribe("a://b")
        await answered(wire, start(client.unsubscribe, "a://b"), "resources/unsubscribe", {})
        await answered(wire, start(client.unsubscribe, "a://never"), "resources/unsubscribe", {})


async def test_a_modern_server_cannot_be_subscribed_to_one_by_one_and_the_error_says_what_can() -> None:
    async with conversation(as_modern) as (client, _wire, _start):
        for call in (client.subscribe, client.unsubscribe):
            with pytest.raises(CapabilityError, match=r"Client\.listen"):
                await call("a://b")


async def test_other_roots_are_announced_in_the_legacy_era_and_declared_so() -> None:
    def roots() -> list[Path]:
        return []

    async with conversation(as_legacy, on_roots=roots) as (client, wire, _start):
        client.roots_changed()
        await wire.notification("notifications/roots/list_changed")
        assert client.capabilities.roots.list_changed
    async with conversation(as_modern, on_roots=roots) as (client, wire, start):
        client.roots_changed()
        start(client.list_tools)
        request = await wire.request("tools/list")  # and nothing before it
        assert request["params"]["_meta"][CLIENT_CAPABILITIES] == {"roots": {}, **FOLLOWS_TASKS}


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("call_tool", ["t"]),
        ("get_prompt", ["p"]),
        ("read_resource", ["a:b"]),
        ("complete", [PromptReference(name="p"), "a", ""]),
        ("list_tools", []),
        ("list_prompts", []),
        ("list_resources", []),
        ("list_resource_templates", []),
        ("ping", []),
    ],
)
async def test_the_value_of_a_request_cannot_be_used_before_it_is_awaited(name: str, args: list[Any]) -> None:
    client = Client.connect(Server("s"))
    group = ClientGroup({"s": Server("s")})
    for owner, of in (("client", client), ("group", group)):
        if hasattr(of, name):
            with pytest.raises(TypeError, match=naming(f"await {owner}.{name}(...)")):
                _ = getattr(of, name)(*args).data


def test_the_value_of_a_request_cannot_be_used_in_code_that_is_not_async() -> None:
    with pytest.raises(TypeError, match=naming("await client.call_tool(...)")):
        _ = Client.connect(Server("s")).call_tool("t").data  # type: ignore[attr-defined]
