"""The official SDK's client at a server with three workers: each of its requests comes on a new connection, so to any worker."""

from __future__ import annotations

import os
import signal
from collections import Counter, deque
from pathlib import Path

import pytest
import trio
from crew import Crew, serving

mcp = pytest.importorskip("mcp", reason="the official SDK is not installed")

import httpx2  # noqa: E402
import mcp_types as wire  # noqa: E402
from mcp import Client  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402

CALLS = 100
TOOLS = ("where", "order", "book")
LIMIT = 90.0
"""Seconds for all calls."""

pytestmark = [
    pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning"),
    # the SDK leaves the iterators of its event streams to the garbage collector
    pytest.mark.filterwarnings("ignore:Async generator 'http(x|core)2:ResourceWarning"),
]


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("w")


class Run:
    """What became of the calls of one client."""

    def __init__(self) -> None:
        self.ended: Counter[str] = Counter()
        self.errors: list[str] = []
        self.asked = 0

    async def answer(self, _context: object, _params: object) -> wire.ElicitResult:
        self.asked += 1
        return wire.ElicitResult(action="accept", content={"value": True})

    async def call(self, crew: Crew, mode: str, pause: float = 0.0) -> None:
        """Call the tools in turn. A client that a lost connection ends is one error, and another one goes on."""
        numbers = deque(range(CALLS))
        while numbers:
            limits = httpx2.Limits(max_keepalive_connections=0)
            try:
                async with (
                    httpx2.AsyncClient(limits=limits, timeout=LIMIT) as http,
                    Client(
                        streamable_http_client(crew.url, http_client=http),
                        mode=mode,
                        elicitation_callback=self.answer,
                    ) as client,
                ):
                    await self._call_with(client, numbers, pause)
            except* httpx2.TransportError as errors:
                self.errors.append(repr(errors.exceptions[0]))

    async def _call_with(self, client: Client, numbers: deque[int], pause: float) -> None:
        while numbers:
            number = numbers.popleft()
            tool = TOOLS[number % len(TOOLS)]
            try:
                result = await client.call_tool(tool, {})
            except mcp.MCPError as error:
                self.errors.append(f"{number} {tool}: {error}")
                continue
            assert not result.is_error
            assert isinstance(result.content[0], wire.TextContent)
            self.ended[result.content[0].text.split()[-1]] += 1
            await trio.sleep(pause)


QUESTIONS = sum(TOOLS[number % len(TOOLS)] != "where" for number in range(CALLS))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_every_call_ends_well_and_each_question_is_asked_once(short: Path, mode: str) -> None:
    async with serving(short) as crew:
        run = Run()
        with trio.fail_after(LIMIT):
            await run.call(crew, mode)
    assert (run.errors, run.ended.total(), run.asked) == ([], CALLS, QUESTIONS)
    # A legacy client is served by the worker that has its session, and a modern one by any.
    assert (len(run.ended) > 1) is (mode == "auto")


async def test_calls_of_both_eras_end_well_while_all_workers_are_replaced(short: Path) -> None:
    async with serving(short, "--drain", "3") as crew:
        before, runs = crew.pids, {mode: Run() for mode in ("auto", "legacy")}
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                for mode, run in runs.items():
                    nursery.start_soon(run.call, crew, mode, 0.1)
                await trio.sleep(1)
                crew.process.send_signal(signal.SIGHUP)
        assert not before & crew.pids
    for run in runs.values():
        assert (run.errors, run.ended.total(), run.asked) == ([], CALLS, QUESTIONS)


async def test_calls_of_both_eras_go_on_when_workers_are_killed_and_none_is_asked_twice(short: Path) -> None:
    async with serving(short) as crew:
        runs = {mode: Run() for mode in ("auto", "legacy")}
        with trio.fail_after(LIMIT):
            async with trio.open_nursery() as nursery:
                for mode, run in runs.items():
                    nursery.start_soon(run.call, crew, mode, 0.1)
                for pid in sorted(crew.pids)[:2]:
                    await trio.sleep(2)
                    os.kill(pid, signal.SIGKILL)
    for run in runs.values():
        # A request that was in the killed process may be lost with it: its client gets one error for it, each time.
        assert len(run.errors) <= 2, run.errors
        assert run.ended.total() + len(run.errors) == CALLS
        assert QUESTIONS - len(run.errors) <= run.asked <= QUESTIONS
