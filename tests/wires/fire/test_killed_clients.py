"""A client that is killed after any message of the demo's conversation leaves a server without a single actor."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio
from serving import IMPORTS, http_process

from trio_mcp.client import Client
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY

HERE = Path(__file__).parent
SERVER = HERE / "demo_server.py"
CLIENT = HERE / "demo_client.py"

AT_LEAST = 8
"""Messages that the conversation has in either era."""

BOUND = 60.0

eras = pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN])


class Victims:
    """Clients, one after the other, each killed after so many messages."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._stdout = process.stdout

    async def run(self, length: int, more: str = "") -> str:
        """Returns `killed`, or `done` when the conversation was over before."""
        with trio.fail_after(BOUND):
            await self._stdin.send_all(f"{length} {more}\n".encode())
            said = b""
            while not said.endswith(b"\n"):
                data = await self._stdout.receive_some()
                assert data, "the clients' parent is gone"
                said += data
        return said.decode().strip()


@asynccontextmanager
async def victims(*arguments: str) -> AsyncIterator[Victims]:
    command = [sys.executable, str(CLIENT), *arguments]
    process = await trio.lowlevel.open_process(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**IMPORTS, "PATH": "/usr/bin:/bin"}
    )
    try:
        yield Victims(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdin.aclose()  # type: ignore[union-attr]
            await process.stdout.aclose()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("scheme", "path", "mode"),
    [
        ("http", "mcp", NEWEST_LEGACY),
        ("http", "mcp", MODERN),
        ("ws", "mcp", NEWEST_LEGACY),
        ("ws", "mcp", MODERN),
        ("http", "sse", NEWEST_LEGACY),
    ],
)
async def test_no_actor_outlives_its_client_by_more_than_its_time(scheme: str, path: str, mode: str) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(http_process(SERVER))
        url = server.url.replace("http", scheme, 1).replace("/mcp", f"/{path}")
        clients = await stack.enter_async_context(victims(mode, url))
        survivor = await stack.enter_async_context(Client.connect(server.url))
        for length in itertools.count(1):
            outcome = await clients.run(length)
            result = await survivor.call_tool("deserted", timeout=BOUND)
            assert not result.is_error, f"after {length} messages: {result.text}"
            if outcome != "killed":
                break
        assert outcome == "done"
        assert length > AT_LEAST


@eras
async def test_over_stdio_the_server_ends_with_its_client_and_without_an_actor(mode: str, tmp_path: Path) -> None:
    async with victims(mode, sys.executable, str(SERVER), "stdio") as clients:
        for length in itertools.count(1):
            file = tmp_path / str(length)
            outcome = await clients.run(length, str(file))
            with trio.fail_after(BOUND):
                while not file.exists():  # noqa: ASYNC110  a process that is no child of ours writes it
                    await trio.sleep(0.01)
            assert json.loads(file.read_text()) == {"running": 0, "parked": 0}
            if outcome != "killed":
                break
        assert outcome == "done"
        assert length > AT_LEAST
