"""Print the CPU time of `trio-mcp backfill` for a call that passes through it, and that of our server for the same call.

16 callers share one pair of pipes (`stdio-16`), in each era. The host has no model, so the proxy adds what it answers to what
passes. CPU times are those of one process, after a warm-up; the server is measured alone, without a proxy.

    python tests/bench/backfill_cpu.py [CALLS]
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio
from peers import APP, NEWEST_LEGACY, Json, Stdio, child, ids, reading, request
from tls_load import cpu_seconds

CALLERS = 16
WARM_UP = 2000
HERE = Path(__file__)


def main() -> None:
    if sys.argv[1:] == ["proxy"]:
        run_proxy()
        return
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    print(f"CPU milliseconds per 1,000 calls of echo, {CALLERS} callers on stdio, {calls} calls")
    for era in ("legacy", "modern"):
        proxy = trio.run(measured, era, calls, str(HERE), "proxy")
        server = trio.run(measured, era, calls, str(APP), "stdio")
        print(f"{era:<8} proxy {proxy:7.1f}   server {server:7.1f}   ratio {proxy / server:.2f}")


def run_proxy() -> None:
    """Be the proxy, as `trio-mcp backfill -- python bench_app.py stdio` is, with a provider that is never asked."""
    from trio_mcp import Backfill, RelayServer
    from trio_mcp.server.running import run_process
    from trio_mcp.session import find_transport
    from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult

    class Unasked:
        async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
            raise AssertionError("echo asks nothing")

    @asynccontextmanager
    async def connect():
        command = [sys.executable, str(APP), "stdio"]
        async with find_transport("stdio").connect(command, env=dict(os.environ)) as channel:
            yield channel

    run_process(partial(find_transport("stdio").serve, RelayServer(connect, Backfill(Unasked()))))


async def measured(era: str, calls: int, *arguments: str) -> float:
    """Return the CPU milliseconds per 1,000 calls of a process."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    script, *words = arguments
    async with child(Path(script), *words, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        async with reading(Stdio(process.stdin, process.stdout)) as peer:
            if era == "legacy":
                await peer.ask(handshake())
            await load(peer, era, WARM_UP)
            before = cpu_seconds(process.pid)
            await load(peer, era, calls)
            return (cpu_seconds(process.pid) - before) * 1e6 / calls


async def load(peer: Stdio, era: str, calls: int) -> None:
    left = calls

    async def caller() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            answer = await peer.ask(call(era))
            assert answer["result"]["content"][0]["text"] == "hello", answer

    async with trio.open_nursery() as nursery:
        for _ in range(CALLERS):
            nursery.start_soon(caller)


def call(era: str) -> Json:
    message = request("echo", {"text": "hello"}, next(ids))
    if era == "legacy":
        del message["params"]["_meta"]
    return message


def handshake() -> Json:
    info = {"name": "bench", "version": "0"}
    params = {"protocolVersion": NEWEST_LEGACY, "capabilities": {}, "clientInfo": info}
    return {"jsonrpc": "2.0", "id": next(ids), "method": "initialize", "params": params}


if __name__ == "__main__":
    main()
