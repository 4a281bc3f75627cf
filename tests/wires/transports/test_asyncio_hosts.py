"""A server in FastAPI on hosts of asyncio: mounted with and without its lifespan, and what a signal ends in which order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
import uvicorn
from serving import IMPORTS, free_port

from trio_mcp import Client, Server, accept
from trio_mcp.errors import Unreachable
from trio_mcp_transports.http import asgi_app

HERE = Path(__file__).parent
BOUND = 60.0
APP = "hosted_app:app"
UVICORN = ["uvicorn", "--log-level", "warning", "--port"]
HOSTS = {
    "uvicorn": UVICORN,
    "hypercorn": ["hypercorn", "-k", "asyncio", "-b"],
    "granian": ["granian", "--interface", "asgi", "--no-log", "--port"],
    "gunicorn": ["gunicorn", "-k", "asgi", "--log-level", "warning", "-b"],
    "gunicorn with uvicorn": ["gunicorn", "-k", "uvicorn_worker.UvicornWorker", "--log-level", "warning", "-b"],
}
"""The module and the options of each, without its port or address."""


class Hosted:
    """The process of the host, and what it has noted."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.notes = list[str]()
        self.ended = trio.Event()
        """Its output has ended: no process of it is left."""
        self._changed = trio.Event()

    async def read(self) -> None:
        left = b""
        assert self.process.stdout is not None
        async for data in self.process.stdout:
            *lines, left = (left + data).split(b"\n")
            self.notes += [line.decode() for line in lines]
            self._changed.set()
            self._changed = trio.Event()
        self.ended.set()

    async def noted(self, text: str) -> None:
        while text not in self.notes:
            await self._changed.wait()


@asynccontextmanager
async def hosted(
    kind: str, options: Sequence[str] = UVICORN, app: str = APP, folder: Path = HERE
) -> AsyncIterator[tuple[Hosted, str]]:
    """Run a host; yield it, and the URL of the mounted server.

    Args:
        kind: "handed" if the host runs the lifespan of the server, or "lazy".
        options: an item of `HOSTS`.
    """
    port = free_port()
    address = f"127.0.0.1:{port}" if options[-1] == "-b" else str(port)
    environment = {**os.environ, **IMPORTS, **({"HANDED": "yes"} if kind == "handed" else {})}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), environment["PYTHONPATH"], str(HERE)])
    command = [sys.executable, "-m", *options, address, app]
    # A group of processes, since some hosts have workers.
    run = partial(
        trio.run_process,
        command,
        stdout=subprocess.PIPE,
        check=False,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            host = Hosted(await nursery.start(run))
            nursery.start_soon(host.read)
            try:
                await reached(f"http://127.0.0.1:{port}", host.process)
                yield host, f"http://127.0.0.1:{port}/tools/mcp"
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(host.process.pid, signal.SIGKILL)


async def reached(url: str, process: trio.Process) -> None:
    """Wait until a route of the host answers."""
    async with httpx2.AsyncClient() as http:
        while True:
            try:
                assert (await http.get(url)).json() == "host"
            except httpx2.TransportError:
                assert process.poll() is None
                await trio.sleep(0.05)
            else:
                return


@pytest.mark.parametrize("kind", ["lazy", "handed"])
async def test_a_mounted_server_uses_the_pool_of_its_host(kind: str, mode: str) -> None:
    async with hosted(kind) as (host, url):
        assert ("server started" in host.notes) == (kind == "handed")
        async with Client.connect(url, mode=mode, on_elicit=lambda _asked: accept(value=2)) as client:
            assert (await client.call_tool("buy")).text == "2 of open"
        host.process.send_signal(signal.SIGTERM)
        await host.noted("host ended")
        assert host.notes == ["server started", "server ended, pool open", "host ended"]


async def assert_ends_in_order(host: Hosted, url: str, number: signal.Signals) -> None:
    """At a signal a call and an open stream end, then the server, then the pool."""
    async with trio.open_nursery() as nursery, Client.connect(url, mode="legacy") as client:

        async def call() -> None:
            with trio.CancelScope(), pytest.raises(Exception):  # noqa: B017  whatever the end of the server is to it
                await client.call_tool("wait", timeout=BOUND)

        nursery.start_soon(call)
        await host.noted("waiting")
        host.process.send_signal(number)
        await host.noted("host ended")
        assert host.notes[-3:] == ["cancelled", "server ended, pool open", "host ended"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("kind", ["lazy", "handed"])
async def test_a_signal_ends_calls_and_open_streams_and_the_server_before_the_pool(
    kind: str, number: signal.Signals
) -> None:
    async with hosted(kind) as (host, url):
        await assert_ends_in_order(host, url, number)


# A host that handles signals in its loop hears them at the same time: there only the order of a lifespan holds.
OTHERS = [(name, "handed") for name in HOSTS if name != "uvicorn"] + [("gunicorn with uvicorn", "lazy")]


@pytest.mark.parametrize(("name", "kind"), OTHERS)
async def test_other_hosts_serve_both_eras_and_end_the_server_before_the_pool(name: str, kind: str) -> None:
    async with hosted(kind, HOSTS[name]) as (host, url):
        for mode in ("modern", "legacy"):
            async with Client.connect(url, mode=mode, on_elicit=lambda _asked: accept(value=2)) as client:
                assert (await client.call_tool("buy")).text == "2 of open"
        await assert_ends_in_order(host, url, signal.SIGTERM)


@pytest.mark.parametrize("way", ["drain", "lifespan"])
async def test_a_host_outside_of_the_main_thread_ends_although_a_stream_is_open(way: str) -> None:
    mcp = asgi_app(Server("shop"))
    port = free_port()
    options: dict[str, Any] = (
        {"lifespan": "off"} if way == "drain" else {"lifespan": "on", "timeout_graceful_shutdown": 1}
    )
    host = uvicorn.Server(uvicorn.Config(mcp, port=port, log_level="critical", **options))
    loops, ended = list[asyncio.AbstractEventLoop](), trio.Event()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await host.serve()

    async def drain() -> None:
        await mcp.drain(1)

    async def serve_in_a_thread() -> None:
        await trio.to_thread.run_sync(asyncio.run, serve(), abandon_on_cancel=True)
        ended.set()

    with trio.fail_after(BOUND):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve_in_a_thread)
            while not host.started:  # noqa: ASYNC110  it is set in the thread
                await trio.sleep(0.01)
            async with Client.connect(f"http://127.0.0.1:{port}/mcp", mode="legacy") as client:
                await client.ping()
                if way == "drain":
                    draining = asyncio.run_coroutine_threadsafe(drain(), loops[0])
                    await trio.to_thread.run_sync(draining.result)
                host.should_exit = True
                await ended.wait()


async def test_a_reload_of_uvicorn_ends_an_open_stream_and_serves_the_new_file(tmp_path: Path) -> None:
    file = tmp_path / "reloaded_app.py"
    file.write_text("from hosted_app import app")
    options = ["uvicorn", "--reload", "--reload-dir", str(tmp_path), "--log-level", "warning", "--port"]
    async with hosted("lazy", options, "reloaded_app:app", tmp_path) as (host, url):
        async with Client.connect(url, mode="legacy", on_elicit=lambda _asked: accept(value=2)) as client:
            assert (await client.call_tool("buy")).text == "2 of open"
            file.write_text("from hosted_app import app\n\napp.state.pool = 'reloaded'")
            await host.noted("host ended")
            await reached(url.removesuffix("/tools/mcp"), host.process)
            assert (await client.call_tool("buy")).text == "2 of open"
        host.process.send_signal(signal.SIGINT)
        await host.ended.wait()
        assert host.notes == ["server started", "server ended, pool open", "host ended"] * 2


async def test_workers_of_uvicorn_serve_calls_without_sessions_in_any_of_them(mode: str) -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "sessionless_app:app", "--port", str(port), "--workers", "2"]
    run = partial(trio.run_process, command, cwd=HERE, env={**os.environ, **IMPORTS}, check=False)
    async with trio.open_nursery() as nursery:
        host = await nursery.start(run)
        try:
            with trio.fail_after(BOUND):
                processes: set[int] = set()
                # Each client has a separate connection, which one of the workers accepts.
                while len(processes) < 2:
                    with suppress(Unreachable):
                        async with Client.connect(f"http://127.0.0.1:{port}/mcp", mode=mode) as client:
                            processes.add((await client.call_tool("process_id")).data)
        finally:
            host.terminate()
