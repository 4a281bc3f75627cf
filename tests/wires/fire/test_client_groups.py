"""A group of clients whose servers are killed and started again: commands, HTTP, HTTP+SSE and WebSocket, in both eras."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from serving import IMPORTS, HttpProcess, http_process
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import ClientGroup, GroupServer, ServerState, ServerStatus
from trio_mcp.base.backoff import Backoff
from trio_mcp.compose import connection
from trio_mcp.compose.servers import Target
from trio_mcp.errors import OutcomeUnknown, ServerUnavailable

SERVER = Path(__file__).parent / "effects_server.py"
BOUND = 60.0

eras = pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN])


@pytest.fixture
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let attempts follow each other quickly: how long they are apart is tested in virtual time."""
    monkeypatch.setattr(connection, "BACKOFF", Backoff(first=0.05, longest=0.2))


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


def command(home: Path) -> GroupServer:
    home.mkdir(exist_ok=True)
    return GroupServer([sys.executable, str(SERVER), str(home)], options={"env": IMPORTS})


@asynccontextmanager
async def one(target: Target, mode: str) -> AsyncIterator[tuple[ClientGroup, Seen]]:
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
    servers = {"one": command(tmp_path / "one"), "other": command(tmp_path / "other")}
    seen = Seen()
    with trio.fail_after(BOUND):
        async with ClientGroup(servers, mode=mode, on_state=seen) as group:
            killed, other = await process_of(group, "one"), await process_of(group, "other")
            del seen.states[:]
            os.kill(killed, signal.SIGKILL)
            await seen.wait_for(ServerStatus.CONNECTED)
            assert await process_of(group, "one") not in (killed, other)
            assert await process_of(group, "other") == other


@eras
async def test_a_tool_whose_command_dies_runs_once_and_the_error_names_it(tmp_path: Path, mode: str) -> None:
    home = tmp_path / "one"
    with trio.fail_after(BOUND):
        async with ClientGroup({"one": command(home)}, mode=mode) as group:
            (home / "die after").touch()
            with pytest.raises(OutcomeUnknown, match="one_act_once"):
                await group.call_tool("one_act_once", {"what": "a"})
            assert (home / "effects").read_text().splitlines() == ["a"]
            assert (await group.call_tool("one_act_once", {"what": "b"})).data == "b"


@asynccontextmanager
async def serving(home: Path, wire: str) -> AsyncIterator[HttpProcess]:
    served = "sse" if wire == "sse" else "http"
    async with http_process(SERVER, EFFECTS=str(home), WIRE=served) as server:
        yield server


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
