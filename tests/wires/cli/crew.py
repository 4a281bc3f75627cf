"""`trio-mcp serve --workers` as a process, with its workers, for tests. Every wait is bounded."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import trio
from serving import IMPORTS, START
from talk import modern_meta
from waiting import until
from wire_terms import headers_of

SERVER = Path(__file__).with_name("workers_server.py")
URL = re.compile(r"serves MCP at (http://[^ ,]+)")
Json = dict[str, Any]


def is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def files(folder: Path) -> dict[str, int]:
    """The files in a folder, with their modes."""
    return {each.name: each.stat().st_mode & 0o777 for each in folder.iterdir() if each.name != "__pycache__"}


async def gone(pids: set[int]) -> None:
    """Wait until none of these processes is there."""
    await until(lambda: not any(map(is_running, pids)))


async def kill(pid: int) -> None:
    """Kill a process, and wait until it has gone: until then it may accept a connection."""
    os.kill(pid, signal.SIGKILL)
    await gone({pid})


class Crew:
    """A parent and its workers.

    Attributes:
        said: the lines on stderr.
        temporary: where its folder is.
    """

    def __init__(self, process: trio.Process, temporary: Path) -> None:
        self.process = process
        self.temporary = temporary
        self.said: list[str] = []
        self._heard = trio.Condition()
        self._calls = 0

    async def listen(self) -> None:
        """Gather what it says until it and its workers have ended."""
        assert self.process.stderr is not None
        rest = b""
        async for data in self.process.stderr:
            *lines, rest = (rest + bytes(data)).split(b"\n")
            async with self._heard:
                self.said += [line.decode() for line in lines]
                self._heard.notify_all()

    async def hear(self, text: str, times: int = 1, seconds: float = START) -> None:
        """Wait until this was said."""
        with trio.fail_after(seconds):
            async with self._heard:
                while sum(text in line for line in self.said) < times:
                    await self._heard.wait()

    @property
    def url(self) -> str:
        return next(match[1] for line in self.said if (match := URL.search(line)))

    @property
    def pids(self) -> set[int]:
        """The workers that live."""
        # By the threads that have started them.
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()
        return {int(pid) for each in threads for pid in (each / "children").read_text().split()}

    async def end(self, number: int = signal.SIGTERM, seconds: float = START) -> int:
        """Send a signal, and return the exit status."""
        self.process.send_signal(number)
        with trio.fail_after(seconds):
            return await self.process.wait()

    async def post(self, method: str, meta: Json | None = None, **params: Any) -> Json:
        """Send a modern request on a new connection, and return the message that answers it."""
        self._calls += 1
        message = {
            "jsonrpc": "2.0",
            "id": self._calls,
            "method": method,
            "params": {**params, "_meta": modern_meta(more=meta)},
        }
        response = await self.send("POST", json=message, headers=headers_of(method, message["params"]))
        found: Json = response.json()
        return found

    async def send(
        self, method: str, *, json: object = None, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Send a request on a new connection."""
        accepting = {"accept": "application/json, text/event-stream", **(headers or {})}
        with trio.fail_after(START):
            async with httpx2.AsyncClient(timeout=START) as http:
                return await http.request(method, self.url, json=json, headers=accepting)

    async def call(self, name: str, meta: Json | None = None, **params: Any) -> str:
        """Call a tool, and return the text of its result."""
        answer = await self.post("tools/call", meta, name=name, **{"arguments": {}, **params})
        text: str = answer["result"]["content"][0]["text"]
        return text


@asynccontextmanager
async def crew(
    temporary: Path, *options: str, server: Path = SERVER, workers: int = 3, **environment: str
) -> AsyncIterator[Crew]:
    """Start a parent; it is killed at the end with its workers if they still run."""
    command = [sys.executable, "-m", "trio_mcp", "serve", str(server), "--port", "0", "--log-level", "info"]
    process = await trio.lowlevel.open_process(
        [*command, "--workers", str(workers), *options],
        stderr=subprocess.PIPE,
        env={**os.environ, **IMPORTS, "TMPDIR": str(temporary), **environment},
    )
    started = Crew(process, temporary)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(started.listen)
        try:
            yield started
        finally:
            left = started.pids if process.poll() is None else set[int]()
            process.kill()
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            with trio.CancelScope(shield=True):
                await process.wait()
            nursery.cancel_scope.cancel()
    assert process.stderr is not None
    await process.stderr.aclose()


@asynccontextmanager
async def serving(temporary: Path, *options: str, workers: int = 3, **more: Any) -> AsyncIterator[Crew]:
    """Start a parent whose workers all serve."""
    async with crew(temporary, *options, workers=workers, **more) as started:
        await started.hear(f"{workers} workers serve")
        yield started
