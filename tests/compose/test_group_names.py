"""A server that lists odd names takes no other down, in a group or mounted: what is odd is left out, with one warning."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from listing_server import MEMBERS, ListingServer, item
from naming import unnamed
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Client, ClientGroup, GroupServer, Server, list_model_tools, proxy
from trio_mcp.types import Tool

every_way = pytest.mark.parametrize("way", ["group", "mounted"])
every_kind = pytest.mark.parametrize("kind", MEMBERS)
by_name = pytest.mark.parametrize("kind", ["tool", "prompt"])
by_uri = pytest.mark.parametrize("kind", ["resource", "resource template"])


def keys(kind: str, *names: str) -> list[str]:
    """Return names as the items of a kind have them."""
    return [name if MEMBERS[kind] == "name" or not name else f"notes://{name}" for name in names]


def in_group(kind: str, prefix: str, name: str) -> str:
    return f"{prefix}_{name}" if MEMBERS[kind] == "name" else f"notes://{prefix}/{name}"


async def listed(group: Any, kind: str) -> list[Any]:
    found: list[Any] = await {
        "tool": group.list_tools,
        "prompt": group.list_prompts,
        "resource": group.list_resources,
        "resource template": group.list_resource_templates,
    }[kind]()
    return found


async def keys_in(group: Any, kind: str) -> list[str]:
    member = {"uriTemplate": "uri_template"}.get(MEMBERS[kind], MEMBERS[kind])
    return [getattr(each, member) for each in await listed(group, kind)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


@asynccontextmanager
async def offered(way: str, **servers: ListingServer) -> AsyncIterator[Any]:
    """Offer these servers in one client."""
    if way == "group":
        async with ClientGroup(servers) as group:
            yield group
        return
    hub = Server("hub")
    for name, server in servers.items():
        hub.mount(name, proxy(server, name=name))
    async with Client.connect(hub) as client:
        yield client


@every_way
@every_kind
async def test_an_item_with_an_empty_name_alone_is_left_out(
    way: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    odd = ListingServer("odd", kind, keys(kind, "one", "", "two"))
    async with offered(way, odd=odd, well=ListingServer("well", kind, keys(kind, "one"))) as client:
        for last in ("two", "three"):
            expected = [in_group(kind, *each) for each in (("odd", "one"), ("odd", last), ("well", "one"))]
            assert sorted(await keys_in(client, kind)) == sorted(expected)
            await odd.change(keys(kind, "one", "", "three"))
            await wait_all_tasks_blocked()
    assert [unnamed(text, kind, "''", "odd", "empty") for text in warnings(caplog)] == [[]]


@every_way
@every_kind
@pytest.mark.parametrize("second", ["second", "first"], ids=["another", "the same"])
async def test_of_two_items_of_one_name_the_first_stays(
    way: str, kind: str, second: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, other, *_ = keys(kind, "one", "other")
    odd = ListingServer("odd", kind, [item(kind, one, "first"), other, item(kind, one, second)])
    async with offered(way, odd=odd) as client:
        for _ in range(2):
            assert [each.description for each in await listed(client, kind)] == ["first", ""]
    assert [unnamed(text, kind, one, "odd") for text in warnings(caplog)] == [[]]


async def test_a_tool_that_is_listed_twice_is_filtered_as_the_first() -> None:
    odd = ListingServer("odd", "tool", [item("tool", "one", "first"), item("tool", "one", "second")])

    def is_second(tool: Tool) -> bool:
        return tool.description == "second"

    for fetch in (True, False):
        async with ClientGroup({"odd": odd}, only=is_second) as group:
            assert not fetch or await group.list_tools() == []
            with pytest.raises(LookupError):
                await group.call_tool("odd_one")


@by_name
@pytest.mark.parametrize("order", [*itertools.permutations(["git", "git_hub"])], ids="-".join)
async def test_a_name_that_needs_the_prefix_of_another_server_is_left_out_in_any_order(
    kind: str, order: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    servers = {"git": ListingServer("git", kind, ["hub_c", "a"]), "git_hub": ListingServer("git_hub", kind, ["c"])}
    async with ClientGroup({name: servers[name] for name in order}) as group:
        assert sorted(await keys_in(group, kind)) == ["git_a", "git_hub_c"]
        if kind == "tool":
            assert (await group.call_tool("git_hub_c")).text == "git_hub: c"
    assert [unnamed(text, "hub_c", "git", "git_hub") for text in warnings(caplog)] == [[]]


@by_uri
async def test_a_uri_that_belongs_to_another_server_is_left_out(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    bare = GroupServer(ListingServer("bare", kind, ["notes://a/x", "notes://y"]), prefix="")
    async with ClientGroup({"bare": bare, "a": ListingServer("a", kind, ["notes://x"])}) as group:
        assert await keys_in(group, kind) == ["notes://y", "notes://a/x"]
        (contents,) = (await group.read_resource("notes://a/x")).contents
        assert getattr(contents, "text", "") == "a: notes://x"
    assert [unnamed(text, kind, "notes://a/x", "bare") for text in warnings(caplog)] == [[]]


@pytest.mark.parametrize("template", ["{+uri}", "{+path:10}", "file{+path:10}"])
async def test_a_template_without_a_scheme_has_no_prefix(template: str, caplog: pytest.LogCaptureFixture) -> None:
    odd = ListingServer("odd", "resource template", [template, "{scheme}://x", "notes:{day}"])
    async with ClientGroup({"odd": odd}) as group:
        assert await keys_in(group, "resource template") == ["{scheme}://odd/x", "notes:odd/{day}"]
    assert [unnamed(text, template, "odd", "scheme") for text in warnings(caplog)] == [[]]


async def test_a_flood_of_odd_names_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    names = [f"hub_{number}" for number in range(900)]
    servers = {"git": ListingServer("git", "tool", names), "git_hub": ListingServer("git_hub", "tool", ["c"])}
    async with ClientGroup(servers) as group:
        for _ in range(2):
            assert await keys_in(group, "tool") == ["git_hub_c"]
    assert unnamed(warnings(caplog)[-1], "900", "git") == []
    assert len(warnings(caplog)) < 30


async def test_of_two_tools_with_one_name_for_the_model_the_first_stays(caplog: pytest.LogCaptureFixture) -> None:
    async with ClientGroup({"a": ListingServer("a", "tool", ["x.y"])}) as group:
        (mangled,) = (await list_model_tools(group)).tools
    posing = ListingServer("a", "tool", ["x.y", mangled.name.removeprefix("a_"), "z"])
    async with ClientGroup({"a": posing}) as group:
        tools = await list_model_tools(group)
    assert [tool.name for tool in tools.tools] == [mangled.name, "a_z"]
    assert [unnamed(text, mangled.name, "a_x.y") for text in warnings(caplog)] == [[]]
