"""Tasks with other implementations: their clients against our server, and our client against their servers."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from processes import HERE, NEWEST, Target, reached, said_by
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import Client, accept
from trio_mcp.errors import TaskCancelled

LIMIT = 60.0
"""Seconds that anything here may take; FastMCP needs several to be imported."""

transports = pytest.mark.parametrize("transport", ["stdio", "http"])


# their clients


@pytest.mark.parametrize(("revision", "transport"), NEWEST)
async def test_fastmcp_calls_waits_answers_and_cancels(
    fastmcp_python: str, target: Target, revision: str, transport: str
) -> None:
    mode = "auto" if revision == MODERN else "legacy"
    server = target("task_server.py", transport)
    seen = await said_by(fastmcp_python, str(HERE / "fastmcp_tasks_client.py"), target=server, mode=mode)
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
    seen = await said_by("node", str(node_folder / "typescript_tasks_client.mjs"), target=server)
    assert seen["capability"] == {}
    first, *states, last = seen["report"]
    assert (first, set(states) - {"working"}, last) == ("taskCreated", {"input_required"}, "1: 7")
    assert seen["broken"][-1] == "error"
    assert (seen["cancelled"], seen["listed"]) == ("cancelled", ["completed", "failed", "cancelled"])
    assert seen["reason"] == "the line is dead"


# their servers


@transports
async def test_our_client_drives_the_tasks_of_fastmcp(fastmcp_python: str, transport: str) -> None:
    command = [fastmcp_python, str(HERE / "fastmcp_tasks_server.py"), transport]
    with reached(command, transport) as server:
        await drives(server, MODERN, failure="no luck")


@transports
async def test_our_client_drives_the_tasks_of_typescript(node_folder: Path, transport: str) -> None:
    command = ["node", str(node_folder / "typescript_tasks_server.mjs"), transport]
    with reached(command, transport) as server:
        await drives(server, NEWEST_LEGACY, failure="no luck", asks=True)


async def drives(server: str | list[str], revision: str, *, failure: str, asks: bool = False) -> None:
    """Call, answer, follow, fail and cancel tasks of a server."""
    with trio.fail_after(LIMIT):
        async with Client.connect(server, on_elicit=lambda _question: accept(value=7)) as client:
            if asks:
                assert (await client.call_tool("ask")).text == "accept 7"
            assert client.protocol_version == revision
            assert (await client.call_tool("double", {"n": 4})).text == "8"
            task = await client.start_tool("double", {"n": 5})
            assert (await client.task(task.id).result()).text == "10"
            broken = await (await client.start_tool("broken")).result()
            assert broken.is_error
            assert failure in broken.text
            endless = await client.start_tool("endless")
            assert (await endless.status()).status == "working"
            await endless.cancel()
            with pytest.raises(TaskCancelled):
                await endless.result()
