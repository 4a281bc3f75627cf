"""A server over HTTP is killed while legacy calls run, and started again: real processes, real clients."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from serving import IMPORTS, START

from trio_mcp import Client, accept

APP = Path(__file__).with_name("restarted_app.py")


class Restarted:
    """The processes of the server, one after the other, at one socket that stays."""

    def __init__(self, folder: Path, listener: socket.socket) -> None:
        self._folder = folder
        self._listener = listener
        self._process: trio.Process | None = None
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"

    @property
    def effects(self) -> list[str]:
        file = self._folder / "effects"
        return file.read_text().split() if file.exists() else []

    async def start(self) -> None:
        fd = self._listener.fileno()
        command = [sys.executable, str(APP), str(fd), str(self._folder)]
        self._process = await trio.lowlevel.open_process(command, pass_fds=[fd], env={**os.environ, **IMPORTS})

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()

    async def restart(self) -> None:
        await self.kill()
        await self.start()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Restarted]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Restarted(tmp_path, listener)
        await server.start()
        try:
            yield server
        finally:
            await server.kill()


async def test_a_call_whose_user_is_thinking_ends_in_the_next_process(server: Restarted) -> None:
    asked: list[str] = []

    async def think(question: Any) -> Any:
        asked.append(question.message)
        await server.restart()
        return accept(value=True)

    with trio.fail_after(START):
        async with Client.connect(server.url, mode="legacy", on_elicit=think) as client:
            result = await client.call_tool("order")
    assert result.text == "accept 1 1"
    assert asked == ["Sure?"]
    assert server.effects == ["charged", "shipped"]


# The SDK leaves the iterators of its event streams to the garbage collector.
@pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning")
async def test_the_official_client_gets_the_result_of_the_next_process(server: Restarted) -> None:
    mcp = pytest.importorskip("mcp", reason="the official SDK is not installed")
    wire = pytest.importorskip("mcp_types")
    asked: list[str] = []

    async def think(_context: object, params: Any) -> Any:
        asked.append(params.message)
        await server.restart()
        return wire.ElicitResult(action="accept", content={"value": True})

    with trio.fail_after(START):
        async with mcp.Client(server.url, mode="legacy", elicitation_callback=think) as client:
            result = await client.call_tool("order", {})
    assert result.content[0].text == "accept 1 1"
    assert asked == ["Sure?"]
    assert server.effects == ["charged", "shipped"]
