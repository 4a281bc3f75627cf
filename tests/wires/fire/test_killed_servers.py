"""A server with a durable store is killed before each message of a conversation: its client finishes, no effect happens twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from effects_home import effects
from test_durable_repeats import connected
from wire_terms import MODERN, NEWEST_LEGACY

from trio_mcp import PeerError, ToolResult
from trio_mcp.client import ClientTask

STRIDE = 6
"""Each of the conversations dies before every sixth message, one later than the conversation before it."""

MOST = 60
"""More messages than a conversation has."""

CALLS = [(wire, mode) for wire in ("stdio", "ws", "http") for mode in (NEWEST_LEGACY, MODERN)]
# A legacy task without authentication belongs to its session, which only HTTP can go on with.
TASKS = [("stdio", MODERN), ("ws", MODERN), ("http", MODERN), ("http", NEWEST_LEGACY)]


async def died(home: Path, wire: str, mode: str, number: int, *, as_task: bool) -> bool:
    """Have the conversation with a server that dies before that message; return whether it got so far."""
    deadly = home / f"die at {number}"
    async with connected(home, wire, mode) as client:
        if as_task:
            await finished(home, await client.start_tool("report", {"what": "a"}))
        else:
            assert (await client.call_tool("act_and_ask", {"what": "a"})).data == "a accept"
            assert effects(home) == ["a"]
    return not deadly.exists()


async def finished(home: Path, task: ClientTask[ToolResult]) -> None:
    """Wait for the end of the task: it has both effects, once, unless its server died in a step, which is named."""
    try:
        assert (await task.result()).text == "a 1 accept a 2"
    except PeerError as error:
        step = ["first", "second"].index(str(error).split("'")[1])
        assert effects(home)[step:] in ([], [f"a {step + 1}"])
    else:
        assert effects(home) == ["a 1", "a 2"]


async def killed_before_each(home: Path, wire: str, mode: str, first: int, stride: int, *, as_task: bool) -> int:
    """Kill before every message from the first on; return how many processes died."""
    for count, number in enumerate(range(first, MOST, stride)):
        place = home / str(number)
        place.mkdir()
        (place / f"die at {number}").touch()
        if not await died(place, wire, mode, number, as_task=as_task):
            return count
    raise AssertionError(f"a conversation of {MOST} messages")


@pytest.mark.parametrize(("wire", "mode"), CALLS)
async def test_a_call_finishes_whichever_message_its_server_dies_before(tmp_path: Path, wire: str, mode: str) -> None:
    first = 1 + CALLS.index((wire, mode)) % STRIDE
    assert await killed_before_each(tmp_path, wire, mode, first, STRIDE, as_task=False) >= 1


@pytest.mark.parametrize(("wire", "mode"), TASKS)
async def test_a_task_finishes_whichever_message_its_server_dies_before(tmp_path: Path, wire: str, mode: str) -> None:
    first = 1 + TASKS.index((wire, mode)) % STRIDE
    assert await killed_before_each(tmp_path, wire, mode, first, STRIDE, as_task=True) >= 1


@pytest.mark.long
@pytest.mark.parametrize("as_task", [False, True], ids=["call", "task"])
@pytest.mark.parametrize(("wire", "mode"), CALLS)
async def test_every_message(tmp_path: Path, wire: str, mode: str, as_task: bool) -> None:
    if as_task and (wire, mode) not in TASKS:
        pytest.skip("the task ends with its session")
    assert await killed_before_each(tmp_path, wire, mode, 1, 1, as_task=as_task) >= 4
