"""What workers bring: `python -m bench.workers [ROUNDS]`, with one and two workers of each library in one run.

`trio-mcp serve --workers` beside the official SDK and FastMCP under `uvicorn --workers`: calls of `echo` a second, and the CPU
time of all processes of the server for a call, with 32 connections. Nothing is pinned to a core.
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import trio

from . import messages
from .environments import NodeEnvironment, PythonEnvironment
from .generator import Load, build, generate
from .http_client import connected, open_session
from .messages import Era
from .paths import ROOT
from .processes import child, log_file
from .running import free_port, listening
from .targets import OURS, TARGETS
from .tls_load import cpu_seconds

ROUNDS = 5
CONNECTIONS = 32
WARMUP, LOAD = Load(duration=1.0, warmup=0.0), Load(duration=3.0, warmup=0.0)
SETTLE_SECONDS = 3.0
"""For the other worker, which loads as long as the first one."""
NO_SESSIONS = {"BENCH_SESSIONS": "0"}
UVICORN = "-m uvicorn --host 127.0.0.1 --log-level warning --no-access-log --loop asyncio --http h11"
FASTMCP = PythonEnvironment("fastmcp", ("fastmcp==4.1.6",))


@dataclass(frozen=True, eq=False)
class Crew:
    """A server in several processes.

    Attributes:
        command: the arguments of the interpreter, but for the port and the number of workers.
        era: of the calls.
        has_sessions: for legacy clients.
    """

    title: str
    environment: PythonEnvironment | NodeEnvironment
    command: Sequence[str | Path]
    era: Era
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    has_sessions: bool = True


def on_uvicorn(title: str, environment: PythonEnvironment | NodeEnvironment, module: str) -> list[Crew]:
    command = (*UVICORN.split(), "--factory", f"bench.servers.{module}:application")
    return [
        Crew(f"{title}, modern", environment, command, Era.MODERN),
        # A session is in one of its processes, and a request may come to any.
        Crew(f"{title}, legacy, no sessions", environment, command, Era.LEGACY, NO_SESSIONS, has_sessions=False),
    ]


SERVED = ("-m", "trio_mcp", "serve", ROOT / "tests" / "bench" / "servers" / "workers_app.py")
OUR_ENVIRONMENT = TARGETS[OURS].environment
CREWS = (
    Crew("trio_mcp, modern", OUR_ENVIRONMENT, SERVED, Era.MODERN),
    Crew("trio_mcp, legacy", OUR_ENVIRONMENT, SERVED, Era.LEGACY),
    Crew("trio_mcp, legacy, no sessions", OUR_ENVIRONMENT, (*SERVED, "--no-sessions"), Era.LEGACY, has_sessions=False),
    *on_uvicorn("mcp", TARGETS["mcp"].environment, "official"),
    *on_uvicorn("fastmcp", FASTMCP, "fast"),
)


@dataclass(frozen=True)
class Figures:
    """Of one run.

    Attributes:
        rate: calls a second.
        cpu: µs of CPU of all processes for a call.
    """

    rate: float
    cpu: float


def processes_of(leader: int) -> list[int]:
    """Return the processes of the session with this leader."""
    found = list[int]()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        # A process may end meanwhile.
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(stat.parent.name))
    return found


@asynccontextmanager
async def serving(crew: Crew, interpreter: Path, workers: int) -> AsyncIterator[tuple[int, int]]:
    """A server for the length of the block: its port, and the leader of its processes."""
    port, log = free_port(), log_file(f"workers-{crew.title.replace(' ', '-')}-{workers}")
    command = [interpreter, *crew.command, "--port", str(port), "--workers", str(workers)]
    async with child(command, log, folder=ROOT / "tests", variables=crew.variables) as process:
        await listening(process, port, log)
        # The parent listens before its workers have loaded.
        async with connected(port) as connection:
            await connection.send("GET", {"Host": f"127.0.0.1:{port}"})
        await trio.sleep(SETTLE_SECONDS)
        yield port, process.pid
        for pid in processes_of(process.pid):
            os.kill(pid, signal.SIGKILL)


async def measured(crew: Crew, port: int, leader: int, load: Load, scratch: Path) -> Figures:
    head = messages.headers(port, crew.era, "tools/call", "echo")
    sessions = {}
    if crew.era is Era.LEGACY and not crew.has_sessions:
        del head["Mcp-Session-Id"]
    elif crew.era is Era.LEGACY:
        ids = [await open_session(port) for _ in range(CONNECTIONS)]
        sessions = {"sids": "\n".join(ids) + "\n"}
    body = messages.call("echo", {"text": "hello world"}, crew.era)
    texts = {"req": messages.post(head, body), **sessions}
    options = {"port": port, "conns": CONNECTIONS, "pid": leader, "expect": "hello world"}
    before = sum(map(cpu_seconds, processes_of(leader)))
    report = await generate("http", load, options, texts, log=scratch / "generator.log", scratch=scratch)
    used = sum(map(cpu_seconds, processes_of(leader))) - before
    return Figures(report.calls / load.duration, used * 1e6 / report.calls)


async def main(rounds: int) -> None:
    """Print a line for each server and number of workers: the medians of the rounds, in each of which all have their turn."""
    await build()
    found: dict[tuple[Crew, int], list[Figures]] = {}
    turns = [(crew, workers) for crew in CREWS for workers in (1, 2)]
    interpreters = {crew.title: await crew.environment.prepare() for crew in CREWS}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for _ in range(rounds):
            for crew, workers in turns:
                async with serving(crew, interpreters[crew.title], workers) as (port, leader):
                    await measured(crew, port, leader, WARMUP, Path(scratch))
                    figures = await measured(crew, port, leader, LOAD, Path(scratch))
                found.setdefault((crew, workers), []).append(figures)
    print(f"load average {os.getloadavg()[0]:.1f}, {rounds} rounds, {CONNECTIONS} connections")
    print(f"{'':32}{'workers':>8}{'calls/s':>9}{'CPU a call':>12}")
    for (crew, workers), each in found.items():
        rate, cpu = (statistics.median(getattr(one, name) for one in each) for name in ("rate", "cpu"))
        print(f"{crew.title:32}{workers:8}{rate:9.0f}{cpu:9.0f} µs")


if __name__ == "__main__":
    trio.run(main, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)
