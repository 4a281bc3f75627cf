"""A client that is killed after any message of the demo's conversation leaves a server without a single actor."""

from __future__ import annotations

import itertools
import json
import math
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest
import trio
from serving import Child, child, http_process

from trio_mcp.client import Client
from trio_mcp.protocol.revisions import MODERN, NEWEST_LEGACY

HERE = Path(__file__).parent
SERVER = HERE / "demo_server.py"
CLIENT = HERE / "demo_client.py"

AT_LEAST = 8
"""Messages that the conversation has in either era."""

BOUND = 60.0

eras = pytest.mark.parametrize("mode", [NEWEST_LEGACY, MODERN])


async def kill_one(clients: Child, length: int, more: str = "") -> str:
    """Return `killed`, or `done` when the conversation was over before that number of messages."""
    with trio.fail_after(BOUND):
        await clients.send(f"{length} {more}\n".encode())
        return (await clients.line()).decode()


victims = partial(child, CLIENT, stderr=None, limit=math.inf)


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
            outcome = await kill_one(clients, length)
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
            outcome = await kill_one(clients, length, str(file))
            with trio.fail_after(BOUND):
                while not file.exists():  # noqa: ASYNC110  a process that is no child of ours writes it
                    await trio.sleep(0.01)
            assert json.loads(file.read_text()) == {"running": 0, "parked": 0}
            if outcome != "killed":
                break
        assert outcome == "done"
        assert length > AT_LEAST
