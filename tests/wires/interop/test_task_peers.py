"""Tasks with other implementations: their clients against our server, and our client against their servers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
from processes import HERE, MODERN, NEWEST, NEWEST_LEGACY, Target
from serving import IMPORTS

from trio_mcp import Client, TaskCancelled, accept

LIMIT = 60.0
"""Seconds that anything here may take; FastMCP needs several to be imported."""

transports = pytest.mark.parametrize("transport", ["stdio", "http"])


async def said_by(*command: str, **told: Any) -> dict[str, Any]:
    """What a client saw that does what it is told."""
    with trio.fail_after(LIMIT):
        done = await trio.run_process(
            [*command, json.dumps(told)], capture_stdout=True, capture_stderr=True, check=False
        )
    assert done.returncode == 0, done.stderr.decode()
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


# their clients


@pytest.mark.parametrize(("revision", "transport"), NEWEST)
async def test_fastmcp_calls_waits_answers_and_cancels(
    fastmcp_python: str, target: Target, revision: str, transport: str
) -> None:
    mode = "auto" if revision == MODERN else "legacy"
    server = target("task_server.py", transport)
    seen = await said_by(fastmcp_python, str(HERE / "fastmcp_tasks_client.py"), target=server, env=IMPORTS, mode=mode)
    assert seen.pop("called") == "1: 7"
    if revision == NEWEST_LEGACY:  # where it has no tasks
        assert not seen
        return
    assert seen == {
        "created": "working",
        "waiting": ["input_required", "reading"],
        "result": "2: 7",
        "cancelled": "cancelled",
        "broken": ["failed", "the line is dead", -32603],
    }


@transports
async def test_the_typescript_client_of_2025_follows_answers_lists_and_cancels(
    node_folder: Path, target: Target, transport: str
) -> None:
    server = target("task_server.py", transport)
    seen = await said_by("node", str(node_folder / "typescript_tasks_client.mjs"), target=server, env=IMPORTS)
    assert seen["capability"] == {}
    first, *states, last = seen["report"]
    assert (first, set(states) - {"working"}, last) == ("taskCreated", {"input_required"}, "1: 7")
    assert seen["broken"][-1] == "error"
    assert (seen["cancelled"], seen["listed"]) == ("cancelled", ["completed", "failed", "cancelled"])
    assert seen["reason"] == "the line is dead"


# their servers


async def test_our_client_drives_the_tasks_of_fastmcp(fastmcp_python: str) -> None:
    command = [fastmcp_python, str(HERE / "fastmcp_tasks_server.py"), "stdio"]
    await drives(command, MODERN, told="no luck")


async def test_our_client_drives_the_tasks_of_typescript(node_folder: Path) -> None:
    command = ["node", str(node_folder / "typescript_tasks_server.mjs")]
    async with drives_client(command) as client:
        assert (await client.call_tool("ask")).text == "accept 7"
    await drives(command, NEWEST_LEGACY, told="no luck")


def drives_client(command: Sequence[str]) -> Client:
    return Client.connect(list(command), on_elicit=lambda _question: accept(value=7))


async def drives(command: Sequence[str], revision: str, *, told: str) -> None:
    """Call, follow, fail and cancel tasks of a server."""
    with trio.fail_after(LIMIT):
        async with drives_client(command) as client:
            assert client.protocol_version == revision
            assert (await client.call_tool("double", {"n": 4})).text == "8"
            task = await client.start_tool("double", {"n": 5})
            assert (await client.task(task.id).result()).text == "10"
            broken = await (await client.start_tool("broken")).result()
            assert broken.is_error
            assert told in broken.text
            endless = await client.start_tool("endless")
            assert (await endless.status()).status == "working"
            await endless.cancel()
            with pytest.raises(TaskCancelled):
                await endless.result()
