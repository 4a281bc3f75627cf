"""What happens when a server is lost that others are offered with: the same in a group of clients and behind a mounted proxy."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest
import trio
from connected import connected
from listing_server import ListingServer
from naming import unnamed
from one_era import one_era
from programs import Programs, programs

from trio_mcp import Client, ClientGroup, Server, proxy
from trio_mcp.client.changes import Changes
from trio_mcp.client.subscriptions import ListenStreams
from trio_mcp.compose.connection import ATTEMPTS, BACKOFF, LISTEN_SECONDS
from trio_mcp.session import MessageFacts

__all__ = ["programs"]

BOUND = 1000.0
MOST_ATTEMPTS = 300 / (BACKOFF.longest * (1 - BACKOFF.jitter)) + 10
"""In 300 seconds, if one back-off alone decides when to connect."""
WAYS = ("group", "mounted")

every_way = pytest.mark.parametrize("way", WAYS)
another_era = pytest.mark.parametrize(("before", "after"), [("legacy", "modern"), ("modern", "legacy")])

Names: TypeAlias = Callable[[], Awaitable[list[str]]]


@asynccontextmanager
async def offered(way: str, programs: Programs, **options: Any) -> AsyncIterator[Names]:
    """Offer the servers, which run as commands, and yield what returns the names of their tools; nothing else is requested."""
    with trio.fail_after(BOUND):
        if way == "group":
            async with ClientGroup({name: [name] for name in programs.servers}, **options) as group:
                yield lambda: named(group)
            return
        outer = Server("outer")
        for name in programs.servers:
            outer.mount(name, proxy([name]))
        async with Client.connect(outer) as client:
            yield lambda: named(client)


async def named(client: Client | ClientGroup) -> list[str]:
    return sorted(tool.name for tool in await client.list_tools())


def add(server: Server, name: str) -> None:
    async def say() -> str:
        return name

    server.add_tool(say, name=name)


def two(programs: Programs, mode: str = "modern") -> None:
    programs.servers = {name: one_era(Server(name), mode) for name in ("files", "weather")}
    for server in programs.servers.values():
        add(server, "old")


async def replace(programs: Programs, mode: str) -> None:
    """End a server that has been there for a while; the next one has another list."""
    await trio.sleep(60)
    programs.servers["files"] = one_era(Server("files"), mode)
    add(programs.servers["files"], "new")
    await programs.kill("files")


@every_way
async def test_a_lost_server_is_connected_to_at_once_and_listed_again(way: str, mode: str, programs: Programs) -> None:
    two(programs, mode)
    async with offered(way, programs) as names:
        assert await names() == ["files_old", "weather_old"]
        await replace(programs, mode)
        await trio.sleep(1)
        assert programs.starts == {"files": 2, "weather": 1}
        assert await names() == ["files_new", "weather_old"]


@every_way
@another_era
async def test_a_server_that_speaks_another_era_when_it_is_back_is_connected_to(
    way: str, before: str, after: str, programs: Programs
) -> None:
    two(programs, before)
    async with offered(way, programs) as names:
        await replace(programs, after)
        await trio.sleep(60)
        assert await names() == ["files_new", "weather_old"]


@every_way
async def test_a_server_that_stays_away_is_tried_ever_more_seldom_and_takes_no_other_down(
    way: str, mode: str, programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    two(programs, mode)
    async with offered(way, programs) as names:
        await trio.sleep(60)
        programs.broken["files"] = OSError("no power")
        lost_at = trio.current_time()
        await programs.kill("files")
        await trio.sleep(300)
        assert "weather_old" in await names()
        times = [lost_at, *[time for time in programs.started_at["files"] if time > lost_at]]
        assert ATTEMPTS < len(times) < MOST_ATTEMPTS
        del programs.broken["files"]
        await trio.sleep(BACKOFF.longest + 5)
        assert await names() == ["files_old", "weather_old"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [unnamed(text, "files", "no power") for text in warnings].count([]) == 1


@every_way
async def test_a_server_that_answers_nothing_is_tried_again_and_takes_no_other_down(
    way: str, programs: Programs, caplog: pytest.LogCaptureFixture
) -> None:
    class Silent(Server):
        async def serve_channel(self, *_arguments: Any, **_options: Any) -> None:
            await trio.sleep_forever()

    two(programs)
    answering, programs.servers["files"] = programs.servers["files"], Silent("files")
    async with offered(way, programs) as names:
        assert await names() == ["weather_old"]
        await trio.sleep(200)
        assert programs.starts["files"] > 1
        programs.servers["files"] = answering
        await trio.sleep(200)
        assert await names() == ["files_old", "weather_old"]
    assert any(not unnamed(record.getMessage(), "files") for record in caplog.records)


@every_way
async def test_a_server_is_listed_when_its_changes_are_followed(way: str, programs: Programs) -> None:
    received: list[str] = []
    two(programs)
    programs.servers["files"].message_middleware(lambda message: received.append(message.method or ""))
    async with offered(way, programs) as names:
        await names()
    assert received.index("subscriptions/listen") < received.index("tools/list")


@every_way
async def test_a_list_that_changed_before_its_changes_were_followed_is_read_again(
    way: str, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, goes_on = ListenStreams.begin, trio.Event()

    async def begin_late(self: ListenStreams, changes: Changes) -> None:
        await goes_on.wait()
        await begin(self, changes)

    monkeypatch.setattr(ListenStreams, "begin", begin_late)
    seen: list[str] = []
    two(programs)
    options = {"on_change": lambda change: seen.append(change.kind)} if way == "group" else {}
    async with offered(way, programs, **options) as names:
        await trio.sleep(LISTEN_SECONDS)
        assert await names() == ["files_old", "weather_old"]
        add(programs.servers["files"], "new")
        await trio.sleep(1)
        assert seen == []
        goes_on.set()
        await trio.sleep(1)
        assert await names() == ["files_new", "files_old", "weather_old"]
        assert way != "group" or "tools" in seen


async def test_a_subscription_does_not_connect_while_the_server_is_away(mode: str, programs: Programs) -> None:
    two(programs, mode)
    server = programs.servers["files"]
    server.add_resource("note://one", lambda: "one")
    async with ClientGroup({"files": ["files"]}) as group, group.listen(uris=["note://files/one"]) as changes:
        await trio.sleep(60)
        programs.broken["files"] = OSError("no power")
        lost_at = trio.current_time()
        await programs.kill("files")
        await trio.sleep(300)
        assert len([time for time in programs.started_at["files"] if time > lost_at]) < MOST_ATTEMPTS
        del programs.broken["files"]
        assert (await anext(changes)).uri == "note://files/one"
        server.resource_updated("note://one")
        assert (await anext(changes)).uri == "note://files/one"


@pytest.mark.parametrize("host", ["legacy", "modern"])
@another_era
async def test_the_calls_of_a_host_reach_a_server_that_speaks_another_era_when_it_is_back(
    host: str, before: str, after: str, programs: Programs
) -> None:
    two(programs, before)
    outer = Server("outer")
    outer.mount("files", proxy(["files"]))
    async with connected(outer, mode=host, bound=BOUND) as client:
        assert (await client.call_tool("files_old")).text == "old"
        await replace(programs, after)
        await trio.sleep(60)
        assert (await client.call_tool("files_new")).text == "new"


@every_way
async def test_a_server_that_ends_when_it_is_followed_is_tried_ever_less(way: str, programs: Programs) -> None:
    two(programs)
    async with offered(way, programs) as names:
        await trio.sleep(60)

        def end(message: MessageFacts) -> None:
            if message.method == "subscriptions/listen":
                trio.lowlevel.spawn_system_task(programs.kill, "files")

        ending = Server("files")
        ending.message_middleware(end)
        programs.servers["files"] = ending
        before = programs.starts["files"]
        await programs.kill("files")
        await trio.sleep(300)
        assert programs.starts["files"] - before < 2 * MOST_ATTEMPTS
        assert "weather_old" in await names()


async def test_a_resource_a_host_follows_is_followed_when_the_server_is_back(mode: str, programs: Programs) -> None:
    two(programs, mode)
    server = programs.servers["files"]
    server.add_resource("note://one", lambda: "one")
    outer = Server("outer")
    outer.mount("files", proxy(["files"]))
    async with connected(outer, bound=BOUND) as client, client.listen(uris=["note://files/one"]) as changes:
        await trio.sleep(60)
        await programs.kill("files")
        await trio.sleep(10)
        server.resource_updated("note://one")
        assert (await anext(changes)).uri == "note://files/one"


HOSTILE = {
    "empty": "",
    "a line break": "a\nb",
    "no text": "\x00\x1b[2J",
    "a format": "%s%(x)d{0}",
    "very long": "a" * 100_000,
    "a name of the language": "__class__",
    "that of another server": "b_good",
    "the prefix of another server": "b_",
    "its own prefix": "files_good",
    "blanks": "   ",
    "right to left": "\u202egood",
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("twice", [False, True], ids=["once", "twice"])
@every_way
async def test_a_hostile_name_costs_itself_alone(way: str, twice: bool, name: str, programs: Programs) -> None:
    hostile: Any = ListingServer("files", "tool", ["good", name, *([name] if twice else []), "better"])
    programs.servers = {"files": hostile, "files_b": Server("files_b"), "weather": Server("weather")}
    for server in ("files_b", "weather"):
        add(programs.servers[server], "good")
    async with offered(way, programs) as names:
        found = await names()
        assert len(found) == len({*found}) <= 5
        assert {"files_good", "files_better", "files_b_good", "weather_good"} <= {*found}
        # Without a name after it, the prefix of another server is no name of that server.
        others = [each for each in found if each.startswith("files_b_") and each != "files_b_"]
        assert others == ["files_b_good"]
