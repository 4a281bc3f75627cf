"""Clients of the official SDKs that make calls one after the other, and what became of these. Every wait is bounded."""

from __future__ import annotations

import json
import os
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import httpx2
import mcp
import mcp_types as wire
import trio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from wire_terms import IDEMPOTENCY_KEY, SERVER_BUSY

CALLS = 100
"""Enough that a disturbance of ten seconds comes in their midst."""
FEW_CALLS = 100 if "TRIO_MCP_RUNS" in os.environ else 40
"""For where nothing disturbs them, or only in the first two seconds; `make long` makes all of them."""
LIMIT = 240.0
"""Seconds for all calls of a client."""
CALL_SECONDS = 15.0
REPEAT_SECONDS = 10.0
"""For how long a call with an idempotency key is repeated."""
ASKING = ("book", "order")


class Kind(NamedTuple):
    """A client: its language, and "auto", "legacy" or, for the tasks of 2025-11-25, "tasks"."""

    language: str
    era: str

    def __str__(self) -> str:
        return f"{self.language}-{self.era}"


KINDS = (
    Kind("python", "auto"),
    Kind("python", "legacy"),
    Kind("typescript", "auto"),
    Kind("typescript", "legacy"),
    Kind("typescript", "tasks"),
)
"""The Python SDK has no methods for tasks, and the TypeScript SDK those of 2025-11-25 alone."""


@dataclass(frozen=True)
class Job:
    """What a client does.

    Attributes:
        tools: that it calls in turn.
        pause: seconds between two calls.
        keep_alive: it uses a connection for more than one request.
    """

    kind: Kind
    tools: Sequence[str]
    pause: float = 0.0
    keep_alive: bool = False
    calls: int = CALLS

    def tool(self, number: int) -> str:
        return self.tools[number % len(self.tools)]

    def item(self, number: int) -> str:
        return f"{self.kind} {number}"

    @property
    def questions(self) -> int:
        """How many of its calls ask."""
        return sum(self.tool(number) in ASKING for number in range(self.calls))


@dataclass
class Run:
    """What became of the calls of one client.

    Attributes:
        ended: how many ended well, by the process in which they ended.
        errors: what the others ended with.
        asked: how often the user was asked, by question.
        refused: what clients ended with that could not connect; another one was made.
        progressed: reports of progress.
        repeated: how often a call with a key was sent again.
    """

    ended: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    progressed: int = 0
    repeated: int = 0

    @property
    def number(self) -> int:
        """How many calls have ended."""
        return self.ended.total() + len(self.errors)

    @property
    def lost(self) -> list[str]:
        """The errors that do not ask for another attempt."""
        return [error for error in self.errors if str(SERVER_BUSY) not in error]

    @property
    def asked_again(self) -> list[str]:
        """The questions that the user was asked more than once."""
        return [question for question, times in self.asked.items() if times > 1]


class PythonCalls:
    """The calls of the Python SDK's client. A lost connection may end a client: then another one goes on."""

    def __init__(self, url: str, job: Job) -> None:
        self.run = Run()
        self._url = url
        self._job = job
        self._numbers = deque(range(job.calls))
        self._repeat_until = 0.0

    async def make(self) -> None:
        """Make all calls."""
        limits = httpx2.Limits() if self._job.keep_alive else httpx2.Limits(max_keepalive_connections=0)
        while self._numbers:
            try:
                async with (
                    httpx2.AsyncClient(limits=limits, timeout=LIMIT) as http,
                    Client(
                        streamable_http_client(self._url, http_client=http),
                        mode=self._job.kind.era,
                        elicitation_callback=self._answer,
                    ) as client,
                ):
                    while self._numbers and await self._call(client):
                        pass
            except* (httpx2.HTTPError, mcp.MCPError) as errors:
                if self._numbers:
                    await self._fail(repr(first_of(errors)))

    async def _call(self, client: Client) -> bool:
        """Make the next call; return whether the client can make another one."""
        number = self._numbers[0]
        tool, item = self._job.tool(number), self._job.item(number)
        meta = {IDEMPOTENCY_KEY: item} if tool == "pay" else None
        try:
            # The SDK waits without end for the response to a request that it could not send.
            result = await client.call_tool(tool, {"item": item}, CALL_SECONDS, self._progress, meta=meta)
        except mcp.MCPError as error:
            await self._fail(f"{error.code} {error}")
            # A legacy client sends nothing more after a request that it could not send.
            return error.code != wire.REQUEST_TIMEOUT
        [block] = result.content
        assert isinstance(block, wire.TextContent)
        if result.is_error:
            await self._fail(block.text)
        else:
            self.run.ended[block.text.split()[-1]] += 1
            await self._go_on()
        return True

    async def _fail(self, error: str) -> None:
        tool = self._job.tool(self._numbers[0])
        # What has a key may be sent again.
        self._repeat_until = self._repeat_until or trio.current_time() + REPEAT_SECONDS
        if tool == "pay" and trio.current_time() < self._repeat_until:
            self.run.repeated += 1
            await trio.sleep(0.2)
            return
        self.run.errors.append(f"{self._job.item(self._numbers[0])} {tool}: {error}")
        await self._go_on()

    async def _go_on(self) -> None:
        self._numbers.popleft()
        self._repeat_until = 0.0
        await trio.sleep(self._job.pause)

    async def _answer(self, _context: object, params: wire.ElicitRequestFormParams) -> wire.ElicitResult:
        self.run.asked[params.message] += 1
        return wire.ElicitResult(action="accept", content={"value": True})

    async def _progress(self, *_report: object) -> None:
        self.run.progressed += 1


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the first error of a group that is none."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


async def typescript_run(url: str, job: Job, folder: Path) -> Run:
    """Make the calls with the TypeScript SDK's client."""
    said = {
        "url": url,
        "era": job.kind.era,
        "name": str(job.kind),
        "calls": job.calls,
        "tools": job.tools,
        "pause": job.pause,
        "keepAlive": job.keep_alive,
        "repeatSeconds": REPEAT_SECONDS,
        "key": IDEMPOTENCY_KEY,
    }
    command = ["node", str(folder / "typescript_calls.mjs"), json.dumps(said)]
    done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    seen = json.loads(done.stdout)
    return Run(
        Counter(seen["ended"]),
        seen["errors"],
        Counter(seen["asked"]),
        seen["refused"],
        seen["progressed"],
        seen["repeated"],
    )


async def run(url: str, job: Job, folder: Path) -> Run:
    """Make the calls of a client, one after the other; return what became of them."""
    with trio.fail_after(LIMIT):
        if job.kind.language == "typescript":
            return await typescript_run(url, job, folder)
        calls = PythonCalls(url, job)
        await calls.make()
        return calls.run
