"""The run: for each workload its servers start, take turns in each round, and end."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import h11
import trio

from .environments import Unavailable
from .generator import Load, WrongAnswers
from .processes import ProcessFailed, child, log_file, tail
from .results import Results
from .targets import Installed, Target, Wire
from .workload import Server, Workload

START_TIMEOUT = 60.0
POLL = 0.02

Item = TypeVar("Item")
Say = Callable[[str], None]
"""Shows a line of progress."""


class DidNotStart(Exception):
    """A server ended, or did not listen, before it was called."""


FAILURES = (
    DidNotStart,
    ProcessFailed,
    WrongAnswers,
    h11.ProtocolError,
    trio.BrokenResourceError,
    trio.TooSlowError,
    OSError,
)
"""Errors of one target, which do not end the run."""


@dataclass(frozen=True)
class Cores:
    """Where the servers run, and where everything else does."""

    server: int
    load: int

    @classmethod
    def allowed(cls) -> Cores:
        """Return the first and the last core that this process may use."""
        cores = sorted(os.sched_getaffinity(0))
        return cls(cores[0], cores[-1])


@dataclass(frozen=True)
class Settings:
    """How a run is made.

    Attributes:
        rounds: How often each target has its turn.
        scratch: A folder for files.
    """

    rounds: int
    load: Load
    cores: Cores
    scratch: Path


async def install(targets: Sequence[Target], results: Results, say: Say) -> list[Installed]:
    """Make the environments; a target whose environment cannot be made is left out.

    That something is missing from the machine is said, and is no failure.
    """
    installed = []
    for target in targets:
        say(f"preparing {target.name}")
        try:
            installed.append(Installed(target, await target.environment.prepare()))
        except Unavailable as error:
            say(f"skipped {target.name}: {error}")
        except ProcessFailed as error:
            results.failures.append(f"{target.name} could not be installed: {error}")
    return installed


async def measure(
    workloads: Sequence[Workload], installed: Sequence[Installed], settings: Settings, results: Results, say: Say
) -> None:
    """Add the figures of these workloads to the results."""
    for workload in workloads:
        async with AsyncExitStack() as stack:
            servers = {}
            for each in installed:
                if workload.runs_on(each.target):
                    try:
                        servers[each.target.name] = await stack.enter_async_context(serving(each, workload, settings))
                    except FAILURES as error:
                        results.fail(workload.name, each.target.name, described(error))
            rounds = 1 if workload.once else settings.rounds
            for number in range(rounds):
                say(f"{workload.name}, round {number + 1} of {rounds}")
                is_new = number == 0 or workload.wire is Wire.STDIO
                load = settings.load.at_first() if is_new else settings.load
                await measure_round(workload, rotated(list(servers.items()), number), servers, load, results)


async def measure_round(
    workload: Workload, turns: Sequence[tuple[str, Server]], servers: dict[str, Server], load: Load, results: Results
) -> None:
    """Let each server have its turn; one that fails has no more of them."""
    for name, server in turns:
        try:
            results.add(workload.name, name, await workload.measure(server, load))
        except FAILURES as error:
            del servers[name]
            results.fail(workload.name, name, described(error) + server_said(workload, server))


def server_said(workload: Workload, server: Server) -> str:
    """Return the last lines of the server's stderr, unless the error has them, since the generator shares it on stdio."""
    return "" if workload.wire is Wire.STDIO else f"\nThe server wrote:\n{tail(server.log)}"


def rotated(items: Sequence[Item], by: int) -> list[Item]:
    """Return the items, beginning with another one in each round."""
    start = by % len(items) if items else 0
    return [*items[start:], *items[:start]]


def described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


@asynccontextmanager
async def serving(installed: Installed, workload: Workload, settings: Settings) -> AsyncIterator[Server]:
    """A server for the length of the block. Raises `DidNotStart` with the last lines of its stderr."""
    log = log_file(f"{installed.target.name}-{workload.wire.value}")
    log.touch()
    core = settings.cores.server
    if workload.wire is Wire.STDIO:
        yield Server(installed, core, log, settings.scratch)
        return
    port = free_port()
    command = ["taskset", "-c", str(core), *installed.command(workload.wire, port)]
    folder = installed.target.environment.folder
    async with child(command, log, folder=folder, variables=workload.variables) as process:
        await listening(process, port, log)
        yield Server(installed, core, log, settings.scratch, port, process.pid)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


async def listening(process: trio.Process, port: int, log: Path) -> None:
    """Wait until the port takes a connection."""
    with trio.move_on_after(START_TIMEOUT):
        while process.returncode is None and process.poll() is None:
            try:
                await (await trio.open_tcp_stream("127.0.0.1", port)).aclose()
            except OSError:
                await trio.sleep(POLL)
            else:
                return
    how = (
        f"did not listen in {START_TIMEOUT:g} seconds"
        if process.poll() is None
        else f"ended with status {process.returncode}"
    )
    raise DidNotStart(f"the server {how}:\n{tail(log)}")
