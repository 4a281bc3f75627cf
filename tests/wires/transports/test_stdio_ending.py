"""A real server on stdio that is told to end, or loses its client, while its tools run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

ROOT = Path(__file__).parents[3]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'transports'}"}
PATIENCE = 20.0
GRACE = {"shutdown_grace": 1.0, "clean_up": 0.3}


class Running:
    """A server process that runs a tool."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdin, self.stdout, self.stderr = process.stdin, process.stdout, process.stderr

    async def say(self, **message: Any) -> None:
        await self.stdin.send_all(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def hear(self) -> Any:
        return json.loads(await line_of(self.stdout))

    async def call(self, tool: str, id: int = 2) -> None:
        """Call a tool, and return when it runs."""
        await self.say(id=id, method="tools/call", params={"name": tool, "arguments": {}})
        assert await line_of(self.stderr) == b"running"

    async def rest(self) -> bytes:
        """What it says on stderr until it ends."""
        return b"".join([bytes(chunk) async for chunk in self.stderr])


async def line_of(stream: trio.abc.ReceiveStream) -> bytes:
    line = b""
    while not line.endswith(b"\n") and (byte := await stream.receive_some(1)):
        line += byte
    return line.rstrip(b"\n")


@asynccontextmanager
async def running(tool: str, **options: float) -> AsyncIterator[Running]:
    command = [sys.executable, str(Path(__file__).with_name("ending_app.py")), json.dumps(options)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with trio.fail_after(PATIENCE):
        process = await trio.lowlevel.open_process(command, env=ENVIRONMENT, **pipes)
        try:
            started = Running(process)
            client = {"name": "tester", "version": "1"}
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
            await started.say(id=1, method="initialize", params=params)
            assert (await started.hear())["id"] == 1
            await started.call(tool)
            yield started
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                assert stream is not None
                await stream.aclose()


async def test_a_signal_ends_the_process_although_a_tool_is_stuck_and_its_caller_is_told() -> None:
    async with running("deaf", **GRACE) as server:
        server.process.send_signal(signal.SIGTERM)
        answer = await server.hear()
        assert "shutting down" in answer["error"]["message"]
        assert await server.process.wait() == 1
        said = await server.rest()
        assert b"deaf-1 is stuck: it was cancelled (shutdown)" in said
        assert b"Timeout (0:00:01)!" in said


async def test_a_signal_ends_the_process_although_a_tool_blocks_the_loop() -> None:
    async with running("blocks", **GRACE) as server:
        server.process.send_signal(signal.SIGTERM)
        assert await server.process.wait() == 1
        said = await server.rest()
        assert b"has kept the event loop from turning" in said
        assert b"time.sleep(3600)" in said


async def test_the_end_of_stdin_ends_the_process_although_a_tool_is_stuck() -> None:
    async with running("deaf", **GRACE) as server:
        await server.stdin.aclose()
        assert await server.process.wait() == 1


async def test_a_closed_stdout_ends_the_process_although_a_tool_is_stuck_and_stdin_is_open() -> None:
    async with running("deaf", **GRACE) as server:
        await server.stdout.aclose()
        await server.say(id=3, method="ping")
        assert await server.process.wait() == 1
