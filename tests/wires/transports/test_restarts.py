"""A server over HTTP is killed while legacy calls run, and started again: real processes, real clients."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from serving import IMPORTS, ROOT, START, line_of

from trio_mcp import Client, accept

APP = Path(__file__).with_name("restarted_app.py")
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([IMPORTS["PYTHONPATH"], str(ROOT / "tests")])}


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
        self._process = await trio.lowlevel.open_process(
            command, pass_fds=[fd], stdout=subprocess.PIPE, env=ENVIRONMENT
        )

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                assert process.stdout is not None
                await process.stdout.aclose()

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def did(self, what: str) -> None:
        """Wait until a tool has had this effect."""
        assert self._process is not None
        with trio.fail_after(START):
            assert (await line_of(self._process.stdout)).decode() == what


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Restarted]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Restarted(tmp_path, listener)
        await server.start()
        try:
            yield server
        finally:
            await server.kill()


@asynccontextmanager
async def connected(server: Restarted, **handlers: Any) -> AsyncIterator[Client]:
    with trio.fail_after(START):
        async with Client.connect(server.url, mode="legacy", **handlers) as client:
            yield client


async def test_a_call_whose_user_is_thinking_ends_in_the_next_process(server: Restarted) -> None:
    asked: list[str] = []

    async def think(question: Any) -> Any:
        asked.append(question.message)
        await server.restart()
        return accept(value=True)

    async with connected(server, on_elicit=think) as client:
        result = await client.call_tool("order")
    assert result.text == "accept 1 1"
    assert asked == ["Sure?"]
    assert server.effects == ["charged", "shipped"]


async def test_a_stream_of_progress_goes_on_without_a_gap(server: Restarted) -> None:
    reported: list[float] = []
    all_told = trio.Event()

    def tell(report: Any) -> None:
        reported.append(report.progress)
        if len(reported) == 4:
            all_told.set()

    async with connected(server) as client, trio.open_nursery() as nursery:

        async def kill() -> None:
            await server.did("ran")
            await all_told.wait()
            await server.restart()

        nursery.start_soon(kill)
        result = await client.call_tool("count", on_progress=tell)
    assert result.text == "counted in run 2"
    assert reported == [1, 2, 3, 4, 5]


async def test_a_call_that_was_in_a_step_is_an_error_that_names_the_step(server: Restarted) -> None:
    progressed = trio.Event()

    async with connected(server) as client, trio.open_nursery() as nursery:

        async def kill() -> None:
            await server.did("charged")
            # Without the id of an event its client could not come back for the rest.
            await progressed.wait()
            await server.restart()

        nursery.start_soon(kill)
        result = await client.call_tool("pay", on_progress=lambda _report: progressed.set())
    assert result.is_error
    assert "step 'charge' may have run" in result.text
    assert server.effects == ["charged"]


async def test_a_call_that_must_not_run_twice_is_an_error_for_its_client(server: Restarted) -> None:
    async def think(_question: Any) -> Any:
        await server.restart()
        return accept(value=True)

    async with connected(server, on_elicit=think) as client:
        result = await client.call_tool("ask")
        assert result.is_error
        assert "restarted" in result.text
        assert (await client.call_tool("ask")).is_error, "the session goes on"
    assert server.effects == ["asked", "asked"]


async def test_a_process_goes_on_when_another_one_on_its_file_is_killed(server: Restarted, tmp_path: Path) -> None:
    both_asked = trio.Event()
    killed = trio.Event()
    results: list[str] = []

    async def answer_late(_question: Any) -> Any:
        both_asked.set()
        await killed.wait()
        return accept(value=True)

    async def think(_question: Any) -> Any:
        await both_asked.wait()
        await server.restart()
        killed.set()
        return accept(value=True)

    async def order(of: Restarted, handler: Any) -> None:
        async with connected(of, on_elicit=handler) as client:
            results.append((await client.call_tool("order")).text.split()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = Restarted(tmp_path, listener)
        await other.start()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(order, server, think)
                nursery.start_soon(order, other, answer_late)
        finally:
            await other.kill()
    assert results == ["accept", "accept"]
    assert sorted(server.effects) == ["charged", "charged", "shipped", "shipped"]


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
