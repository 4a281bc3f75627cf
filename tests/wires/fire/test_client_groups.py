"""A group of clients whose servers are killed and started again: commands, HTTP, HTTP+SSE and WebSocket, in both eras."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
from effects_home import BOUND, SERVER, command, eras
from serving import IMPORTS, HttpProcess, http_process
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import ClientGroup, GroupServer, ServerState, ServerStatus
from trio_mcp.compose import connection
from trio_mcp.errors import ServerUnavailable


@pytest.fixture
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let attempts follow each other quickly: how long they are apart is tested in virtual time."""
    monkeypatch.setattr(connection, "BACKOFF", replace(connection.BACKOFF, first=0.05, longest=0.2))


class Seen:
    """The states of the servers of a group, to wait for."""

    def __init__(self) -> None:
        self.states: list[ServerState] = []
        self._news = trio.Event()

    def __call__(self, state: ServerState) -> None:
        self.states.append(state)
        self._news.set()
        self._news = trio.Event()

    async def wait_for(self, status: ServerStatus) -> None:
        while not any(state.status is status for state in self.states):
            await self._news.wait()
        del self.states[:]


def server_of(home: Path) -> GroupServer:
    return GroupServer(command(home), options={"env": IMPORTS})


@asynccontextmanager
async def one(target: GroupServer | str, mode: str) -> AsyncIterator[tuple[ClientGroup, Seen]]:
    """A group with one server, whose connection is stable."""
    seen = Seen()
    with trio.fail_after(BOUND):
        async with ClientGroup({"one": target}, mode=mode, on_state=seen) as group:
            assert await process_of(group, "one") != os.getpid()
            del seen.states[:]
            yield group, seen


async def process_of(group: ClientGroup, server: str) -> int:
    return int((await group.call_tool(f"{server}_process_id")).data or 0)  # type: ignore[arg-type]


def url_of(server: HttpProcess, wire: str) -> str:
    if wire == "websocket":
        return server.url.replace("http", "ws", 1)
    return server.url.replace("/mcp", "/sse") if wire == "sse" else server.url


@eras
async def test_a_killed_command_is_started_again_while_the_others_go_on(tmp_path: Path, mode: str) -> None:
    servers = {"one": server_of(tmp_path / "one"), "other": server_of(tmp_path / "other")}
    seen = Seen()
    with trio.fail_after(BOUND):
        async with ClientGroup(servers, mode=mode, on_state=seen) as group:
            killed, other = await process_of(group, "one"), await process_of(group, "other")
            del seen.states[:]
            os.kill(killed, signal.SIGKILL)
            await seen.wait_for(ServerStatus.CONNECTED)
            assert await process_of(group, "one") not in (killed, other)
            assert await process_of(group, "other") == other


def serving(home: Path, wire: str) -> AbstractAsyncContextManager[HttpProcess]:
    return http_process(SERVER, EFFECTS=str(home), WIRE="sse" if wire == "sse" else "http")


@pytest.mark.parametrize(
    ("wire", "mode"),
    [("http", NEWEST_LEGACY), ("http", MODERN), ("websocket", NEWEST_LEGACY), ("websocket", MODERN), ("sse", "legacy")],
)
async def test_a_server_that_restarts_on_its_port_is_connected_to_again(
    tmp_path: Path, wire: str, mode: str, short_delays: None
) -> None:
    async with serving(tmp_path, wire) as server:
        async with one(url_of(server, wire), mode) as (group, seen):
            async with group.listen(tools=True) as changes:
                killed = await process_of(group, "one")
                await server.restart()
                # Nothing is asked of the server until the group has noticed.
                await group.wait_connected("one")
                # The list may have changed while it was away.
                await changes.__anext__()
                assert await process_of(group, "one") != killed
            assert "one_act_once" in [tool.name for tool in await group.list_tools()]
            assert [state.status for state in seen.states][-1] is ServerStatus.CONNECTED


@pytest.mark.parametrize(("wire", "mode"), [("http", MODERN), ("websocket", NEWEST_LEGACY), ("sse", "legacy")])
async def test_a_server_that_stays_away_is_unavailable_until_it_is_back(
    tmp_path: Path, wire: str, mode: str, short_delays: None
) -> None:
    async with serving(tmp_path, wire) as server:
        async with one(url_of(server, wire), mode) as (group, seen):
            await server.kill()
            await seen.wait_for(ServerStatus.UNAVAILABLE)
            with pytest.raises(ServerUnavailable, match="'one'"):
                await group.call_tool("one_process_id")
            assert await group.list_tools() == []
            await server.start()
            await group.wait_connected("one")
            assert await process_of(group, "one")
