"""A client whose server is killed goes on with the next one: over a command, which it starts again, and over a WebSocket."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from effects_home import BOUND, SERVER, command, effects, eras
from serving import IMPORTS, http_process

from trio_mcp import Client, Disconnected
from trio_mcp.errors import OutcomeUnknown


@asynccontextmanager
async def connected(home: Path, mode: str, **options: bool) -> AsyncIterator[Client]:
    with trio.fail_after(BOUND):
        async with Client.connect(command(home), mode=mode, env=IMPORTS, **options) as client:
            await client.list_tools()
            yield client


async def kill_server_of(client: Client) -> int:
    pid: int = (await client.call_tool("process_id")).data
    os.kill(pid, signal.SIGKILL)
    return pid


@eras
async def test_a_command_that_was_killed_is_started_again_for_the_next_request(tmp_path: Path, mode: str) -> None:
    async with connected(tmp_path, mode) as client:
        killed = await kill_server_of(client)
        assert (await client.call_tool("process_id")).data != killed


@eras
async def test_a_tool_that_is_not_harmless_never_runs_twice(tmp_path: Path, mode: str) -> None:
    async with connected(tmp_path, mode) as client:
        (tmp_path / "die after").touch()
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("act_once", {"what": "a"})
        assert effects(tmp_path) == ["a"]
        assert (await client.call_tool("act_once", {"what": "b"})).data == "b"


@eras
async def test_a_server_that_keeps_crashing_is_given_up_with_how_it_ended(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each attempt waits longer than the one before it.
    monkeypatch.setattr("trio_mcp.client.requester.ATTEMPTS", 2)
    async with connected(tmp_path, mode) as client:
        with pytest.raises(Disconnected, match="SIGKILL"):
            await client.call_tool("crash")


@eras
async def test_without_reconnect_the_client_ends_with_its_server(tmp_path: Path, mode: str) -> None:
    async with connected(tmp_path, mode, reconnect=False) as client:
        await kill_server_of(client)
        with pytest.raises(Disconnected):
            await client.list_tools()


@eras
async def test_listeners_hear_of_changes_of_the_next_server(tmp_path: Path, mode: str) -> None:
    async with connected(tmp_path, mode) as client, client.listen(tools=True) as changes:
        await kill_server_of(client)
        # After an interruption everything counts as changed.
        async for _change in changes:
            break


@eras
async def test_a_websocket_that_broke_off_is_opened_again(tmp_path: Path, mode: str) -> None:
    async with http_process(SERVER, EFFECTS=str(tmp_path)) as server:
        url = server.url.replace("http", "ws", 1)
        with trio.fail_after(BOUND):
            async with Client.connect(url, mode=mode) as client:
                first = (await client.call_tool("process_id")).data
                await server.restart()
                assert (await client.call_tool("process_id")).data != first
