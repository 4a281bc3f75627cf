"""The memory budget over real sockets (reliability row 90): what clients make the server hold, and what is refused."""

from __future__ import annotations

import os
import re
import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from serving import IMPORTS, ROOT, Child, child

from trio_mcp import Client

HERE = Path(__file__).parent
MIB = 1024 * 1024
BUDGET = 64 * MIB
CROWD = 1_000
PATHS = {"PYTHONPATH": os.pathsep.join([IMPORTS["PYTHONPATH"], str(ROOT / "tests")])}
"""What the crowd imports."""
LIMIT = 90.0

# What the connections of a crowd do, and whether that meets the budget.
TELLING = {
    "body with an emoji": True,
    "running call with objects": True,
    "parked call with arrays in _meta": True,
    "result that is not read": True,
    "WebSocket message": True,
    "WebSocket inbox": True,
    "WebSocket results": True,
}
OTHERS = {
    "idle": False,
    "head": False,
    "body": True,
    "running call with arrays": True,
    "running call with floats": True,
    "running call with an emoji": True,
    "parked call with arrays": True,
    "parked call with objects": True,
    "small parked call": False,
    "pipelined requests": True,
    "sessions": True,
    "streams": False,
    "WebSocket": False,
    "WebSocket message with an emoji": True,
}


def crowd_of(kind: str, meets_budget: bool) -> object:
    return pytest.param(kind, meets_budget, marks=[pytest.mark.long] if kind in OTHERS else [])


crowds = pytest.mark.parametrize(
    ("kind", "meets_budget"), [crowd_of(*each) for each in (*TELLING.items(), *OTHERS.items())]
)


class BudgetedServer:
    """A server in a separate process."""

    def __init__(self, process: Child, url: str) -> None:
        self.url = url
        self.port = url.rpartition(":")[2].partition("/")[0]
        self._process = process

    async def drawn(self) -> int:
        return (await self._gauge())[0]

    async def refused(self) -> int:
        return (await self._gauge())[1]

    async def until_drawn(self, size: int) -> None:
        """Wait until it holds no more than this; the process has no event to wait for."""
        while await self.drawn() > size:  # noqa: ASYNC110
            await trio.sleep(0.05)

    async def until_refused(self) -> None:
        """Wait until it has refused something; the process has no event to wait for."""
        while not await self.refused():  # noqa: ASYNC110
            await trio.sleep(0.05)

    async def answers(self) -> None:
        """Wait until a client that is new to it gets an answer: it must come, though it may be refused before."""
        async with Client.connect(self.url, mode="modern") as client:
            assert (await client.call_tool("echo", {"text": "hi"})).text == "hi"

    def memory(self, name: str) -> int:
        """Return `VmRSS` or `VmHWM` in bytes (proc(5))."""
        status = Path(f"/proc/{self._process.process.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    async def _gauge(self) -> tuple[int, int]:
        await self._process.send(b"\n")
        drawn, refused = (await self._process.line()).split()
        return int(drawn), int(refused)


@asynccontextmanager
async def budgeted(budget: int = BUDGET) -> AsyncIterator[BudgetedServer]:
    async with child(HERE / "budgeted_app.py", str(budget), strict=False, limit=LIMIT, stderr=None) as process:
        yield BudgetedServer(process, (await process.line()).decode())


@pytest.fixture(scope="module")
def files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < 2 * CROWD + 200:
        pytest.skip(f"{CROWD} connections need more open files than the hard limit of this process, {most}")


@crowds
@pytest.mark.usefixtures("files")
async def test_a_crowd_makes_the_server_take_little_more_than_its_budget(kind: str, meets_budget: bool) -> None:
    async with budgeted() as server:
        for _ in range(3):  # what is imported and cached at first use is no part of the crowd's cost
            await server.answers()
        idle, drawn = server.memory("VmRSS"), await server.drawn()
        async with child(
            HERE / "hostile_crowd.py",
            server.port,
            str(CROWD),
            kind,
            strict=False,
            stderr=None,
            limit=LIMIT,
            variables=PATHS,
        ) as crowd:
            assert await crowd.line() == b"rests"
            if meets_budget:
                # The system takes what a connection sends, and the server may be slower than the crowd.
                await server.until_refused()
        await server.until_drawn(drawn)
        await server.answers()
        assert bool(await server.refused()) == meets_budget
        assert server.memory("VmHWM") - idle <= 1.5 * BUDGET
