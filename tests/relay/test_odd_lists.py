"""What a server behind a mounted proxy lists takes nothing else down: what is odd is left out, with one warning."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from listing_server import MEMBERS, ListingServer
from naming import unnamed
from relaying import SECONDS
from trio.testing import MockClock, wait_all_tasks_blocked

from trio_mcp import Client, Server, proxy
from trio_mcp.relay.mirroring import PAUSES, READ_AT_ONCE
from trio_mcp.relay.server_client import ServerClient
from trio_mcp.types import Tool

every_kind = pytest.mark.parametrize("kind", MEMBERS)
by_name = pytest.mark.parametrize("kind", ["tool", "prompt"])


def key(kind: str, name: str) -> str:
    """Return a name as the items of a kind have it."""
    return name if MEMBERS[kind] == "name" or not name else f"notes://{name}"


def mounted(kind: str, prefix: str, name: str) -> str:
    return f"{prefix}_{name}" if MEMBERS[kind] == "name" else f"notes://{prefix}/{name}"


def add_own(server: Server, kind: str, name: str) -> None:
    """Register an item of the program, which describes itself as its own."""
    text = "{x}" if kind == "resource template" else ""
    {
        "tool": lambda: server.add_tool(lambda: "own", name=name, description="own"),
        "prompt": lambda: server.add_prompt(lambda: "own", name=name, description="own"),
        "resource": lambda: server.add_resource(name, lambda: "own", description="own"),
        "resource template": lambda: server.add_resource(name + text, lambda x: "own", description="own"),
    }[kind]()


def remove_own(server: Server, kind: str, name: str) -> None:
    {"tool": server.remove_tool, "prompt": server.remove_prompt}.get(kind, server.remove_resource)(name)


@asynccontextmanager
async def served(hub: Server) -> AsyncIterator[Client]:
    with trio.fail_after(SECONDS):
        async with Client.connect(hub) as client:
            yield client


async def listed(client: Client, kind: str) -> dict[str, Any]:
    """Return the descriptions of all items of a kind, by their names or URIs."""
    items: Any = {
        "tool": client.list_tools,
        "prompt": client.list_prompts,
        "resource": client.list_resources,
        "resource template": client.list_resource_templates,
    }[kind]
    member = {"uriTemplate": "uri_template"}.get(MEMBERS[kind], MEMBERS[kind])
    return {getattr(each, member): each.description for each in await items()}


def warnings(caplog: pytest.LogCaptureFixture, level: str = "WARNING") -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == level]


@by_name
@pytest.mark.parametrize("deep", [False, True], ids=["beside", "deep"])
@pytest.mark.parametrize("late", ["git", "git_hub"])
async def test_a_name_that_needs_the_prefix_of_another_server_is_left_out_whichever_lists_first(
    kind: str, deep: bool, late: str, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {
        "git": ListingServer("git", kind, ["hub_c", "a"], seconds=0.02 if late == "git" else 0.0),
        "git_hub": ListingServer("git_hub", kind, ["c"], seconds=0.02 if late == "git_hub" else 0.0),
    }
    hub = Server("hub")
    if deep:
        between = Server("between")
        between.mount("hub", proxy(ListingServer("inner", kind, ["c", "d"]), name="inner"))
        hub.mount("git", between)
    else:
        hub.mount("git", proxy(servers["git"], name="git"))
    hub.mount("git_hub", proxy(servers["git_hub"], name="git_hub"))
    async with served(hub) as client:
        assert {*await listed(client, kind)} == ({"git_hub_c"} if deep else {"git_a", "git_hub_c"})
        if kind == "tool":
            assert (await client.call_tool("git_hub_c")).text == "git_hub: c"
    left_out = [("inner", "c"), ("inner", "d")] if deep else [("git", "hub_c")]
    texts = warnings(caplog)
    # The reason is the same, whichever lists first.
    assert [unnamed(text, *named, "git_hub", "'git_hub_'") for text, named in zip(texts, left_out, strict=True)] == [
        []
    ] * len(texts)


@every_kind
@pytest.mark.parametrize("deep", [False, True], ids=["beside", "deep"])
async def test_an_item_of_the_program_takes_the_place_of_a_peers_and_gives_it_back(
    kind: str, deep: bool, caplog: pytest.LogCaptureFixture
) -> None:
    far = ListingServer("far", kind, [key(kind, "one{x}" if kind == "resource template" else "one")])
    hub = between = Server("hub")
    if deep:
        between = Server("between")
        hub.mount("b", between)
    between.mount("f", proxy(far, name="far"))
    own = mounted(kind, "b/f" if deep and MEMBERS[kind] != "name" else "b_f" if deep else "f", "one")
    shown = f"{own}{{x}}" if kind == "resource template" else own
    async with served(hub) as client:
        assert await listed(client, kind) == {shown: ""}
        add_own(hub, kind, own)
        assert await listed(client, kind) == {shown: "own"}
        await far.change([*far.items, key(kind, "new")])
        await wait_all_tasks_blocked()
        assert (await listed(client, kind))[shown] == "own"
        with pytest.raises(ValueError, match="already"):
            add_own(hub, kind, own)
        remove_own(hub, kind, shown)
        await wait_all_tasks_blocked()
        assert (await listed(client, kind))[shown] == ""
    assert [unnamed(text, kind, "one", "far", "hub") for text in warnings(caplog)] == [[]]


async def test_a_tool_that_becomes_one_that_cannot_be_offered_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    far = ListingServer("far", "tool", ["one", "two"])
    hub = Server("hub")
    hub.mount("f", proxy(far, name="far"))
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "not a header"}}}
    async with served(hub) as client:
        assert {*await listed(client, "tool")} == {"f_one", "f_two"}
        await far.change([{"name": "one", "inputSchema": schema}, "two"])
        await wait_all_tasks_blocked()
        assert {*await listed(client, "tool")} == {"f_two"}
    assert [unnamed(text, "one", "far", "not a header") for text in warnings(caplog)] == [[]]


async def test_an_item_of_the_program_may_come_and_go_in_a_thread() -> None:
    far = ListingServer("far", "tool", ["one", "two"])
    hub = Server("hub")
    hub.mount("f", proxy(far, name="far"))
    async with served(hub) as client:
        await trio.to_thread.run_sync(add_own, hub, "tool", "f_one")
        assert await listed(client, "tool") == {"f_two": "", "f_one": "own"}
        await trio.to_thread.run_sync(hub.remove_tool, "f_one")
        assert await listed(client, "tool") == {"f_two": "", "f_one": ""}


async def test_what_is_left_out_is_a_function_of_the_lists_and_not_of_their_order() -> None:
    lists = [["one", "two"], ["two", "three"], ["", "one", "one"]]
    found = set()
    for order in itertools.permutations(lists):
        far = ListingServer("far", "tool", [])
        hub = Server("hub")
        hub.mount("f", proxy(far, name="far"))
        hub.add_tool(lambda: "own", name="f_two")
        async with served(hub) as client:
            for names in (*order, ["one", "two", "three"]):
                await far.change(names)
                await wait_all_tasks_blocked()
            found.add(tuple(await listed(client, "tool")))
    assert {frozenset(each) for each in found} == {frozenset({"f_one", "f_two", "f_three"})}


async def test_a_list_is_read_over_another_connection_if_that_of_the_host_has_ended(mock_clock: MockClock) -> None:
    far = ListingServer("far", "tool", ["one"])
    hub = Server("hub")
    hub.mount("f", proxy(far, name="far"))
    async with served(hub) as client:
        await client.call_tool("f_one")
        for number in range(READ_AT_ONCE):
            await far.change([f"{number}"])
            await wait_all_tasks_blocked()
        await far.change(["last"], far.channels[-1:])
        await wait_all_tasks_blocked()
        assert {*await listed(client, "tool")} == {f"f_{READ_AT_ONCE - 1}"}
        await far.channels[-1].aclose()
        await wait_all_tasks_blocked()
        mock_clock.jump(PAUSES.first)
        await wait_all_tasks_blocked()
        assert {*await listed(client, "tool")} == {"f_last"}


async def test_a_list_is_not_read_again_while_no_connection_is_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trio_mcp.relay")
    far = ListingServer("far", "tool", ["one"])
    hub = Server("hub")
    hub.mount("f", proxy(far, name="far"))
    async with served(hub):
        far.seconds = SECONDS
        await far.change(["two"])
        await wait_all_tasks_blocked()
        await far.channels[0].aclose()
        await wait_all_tasks_blocked()
        assert [unnamed(text, "tools", "far") for text in warnings(caplog, "INFO")].count([]) == 1


async def test_a_host_that_connects_while_a_list_changes_learns_the_new_list(monkeypatch: pytest.MonkeyPatch) -> None:
    far = ListingServer("far", "tool", ["old"])
    hub = Server("hub")
    hub.mount("f", proxy(far, name="far"))
    original, learned = ServerClient.learn_in_steps, dict[ServerClient, list[str]]()
    has_learned, goes_on = trio.Event(), trio.Event()

    async def learn_slowly(client: ServerClient, tools: Sequence[Tool]) -> list[Tool]:
        found = await original(client, tools)
        learned.setdefault(client, []).extend(tool.name for tool in tools)
        has_learned.set()
        await goes_on.wait()
        return found

    async with served(hub) as client, trio.open_nursery() as nursery:
        monkeypatch.setattr(ServerClient, "learn_in_steps", learn_slowly)
        await far.change(["old"])
        await wait_all_tasks_blocked()
        nursery.start_soon(client.call_tool, "f_old")
        await has_learned.wait()
        await far.change(["new"], far.channels[:1])
        await wait_all_tasks_blocked()
        assert {*await listed(client, "tool")} == {"f_new"}
        goes_on.set()
        await wait_all_tasks_blocked()
        assert [names[-1] for names in learned.values()] == ["new"]


async def test_an_update_of_an_unmountable_resource_takes_nothing_down(caplog: pytest.LogCaptureFixture) -> None:
    far = ListingServer("far", "tool", ["one"])
    hub = Server("hub")
    hub.mount("f", proxy(far, name="far"))
    async with served(hub) as client:
        await client.call_tool("f_one")
        for uri in ("", "x", "x" * 9000, "notes://" + "x" * 8180):
            await far.notify("notifications/resources/updated", uri=uri)
        await wait_all_tasks_blocked()
        await far.change(["two"])
        await wait_all_tasks_blocked()
        assert {*await listed(client, "tool")} == {"f_two"}
        assert (await client.call_tool("f_two")).text == "far: two"
    assert warnings(caplog, "ERROR") == []
