"""A server in FastAPI on uvicorn: mounted with and without its lifespan, and what a signal ends in which order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from socket import socket

import httpx2
import pytest
import trio
from serving import IMPORTS

from trio_mcp import Client, accept
from trio_mcp.errors import Unreachable

APP = Path(__file__).with_name("hosted_app.py")
BOUND = 40.0


class Hosted:
    """The process of the host, and what it has noted."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.notes = list[str]()
        self._changed = trio.Event()

    async def read(self) -> None:
        left = b""
        assert self.process.stdout is not None
        async for data in self.process.stdout:
            *lines, left = (left + data).split(b"\n")
            self.notes += [line.decode() for line in lines]
            self._changed.set()
            self._changed = trio.Event()

    async def noted(self, text: str) -> None:
        while text not in self.notes:
            await self._changed.wait()

    async def port(self) -> int:
        while not self.notes:
            await self._changed.wait()
        return int(self.notes[0])


@asynccontextmanager
async def hosted(kind: str) -> AsyncIterator[tuple[Hosted, str]]:
    run = partial(trio.run_process, [sys.executable, str(APP), kind], stdout=subprocess.PIPE, check=False)
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            host = Hosted(await nursery.start(run))
            nursery.start_soon(host.read)
            url = f"http://127.0.0.1:{await host.port()}"
            async with httpx2.AsyncClient() as http:
                # It listens before it serves.
                assert (await http.get(url)).json() == "host"
            try:
                yield host, f"{url}/tools/mcp"
            finally:
                if host.process.returncode is None:
                    host.process.kill()


@pytest.mark.parametrize("mode", ["legacy", "modern"])
@pytest.mark.parametrize("kind", ["lazy", "handed"])
async def test_a_mounted_server_uses_the_pool_of_its_host(kind: str, mode: str) -> None:
    async with hosted(kind) as (host, url):
        assert ("server started" in host.notes) == (kind == "handed")
        async with Client.connect(url, mode=mode, on_elicit=lambda _asked: accept(value=2)) as client:
            assert (await client.call_tool("buy")).text == "2 of open"
        host.process.send_signal(signal.SIGTERM)
        await host.noted("host ended")
        assert host.notes[1:] == ["server started", "server ended, pool open", "host ended"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ["lazy", "handed"])
async def test_a_signal_ends_calls_and_open_streams_and_the_server_before_the_pool(
    kind: str, number: signal.Signals
) -> None:
    async with hosted(kind) as (host, url), trio.open_nursery() as nursery:
        async with Client.connect(url, mode="legacy") as client:

            async def call() -> None:
                with trio.CancelScope(), pytest.raises(Exception):  # noqa: B017  whatever the end of the server is to it
                    await client.call_tool("wait", timeout=BOUND)

            nursery.start_soon(call)
            await host.noted("waiting")
            host.process.send_signal(number)
            await host.noted("host ended")
            assert host.notes[-3:] == ["cancelled", "server ended, pool open", "host ended"]
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ["legacy", "modern"])
async def test_workers_of_uvicorn_serve_calls_without_sessions_in_any_of_them(mode: str) -> None:
    with socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "sessionless_app:app", "--port", str(port), "--workers", "2"]
    run = partial(trio.run_process, command, cwd=APP.parent, env={**os.environ, **IMPORTS}, check=False)
    async with trio.open_nursery() as nursery:
        host = await nursery.start(run)
        try:
            with trio.fail_after(BOUND):
                processes: set[int] = set()
                # Each client has a connection of its own, which one of the workers accepts.
                while len(processes) < 2:
                    with suppress(Unreachable):
                        async with Client.connect(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
                            processes.add((await client.call_tool("process_id")).data)
        finally:
            host.terminate()
