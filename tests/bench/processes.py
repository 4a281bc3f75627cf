"""Child processes of which nothing is left after their block, even if the benchmark is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import trio

from .paths import BUILD, ROOT

TAIL_LINES = 8


class ProcessFailed(Exception):
    """A process ended with another status than 0."""


def log_file(name: str) -> Path:
    """Return the file for what a process writes to stderr."""
    folder = BUILD / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.log"


def tail(log: Path) -> str:
    """Return the last lines of a log, indented."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
    return "\n".join(f"    {line}" for line in lines) or "    (nothing)"


@asynccontextmanager
async def child(
    command: Sequence[str | Path],
    log: Path,
    *,
    folder: Path = ROOT,
    variables: Mapping[str, str] | None = None,
    stdout: int = subprocess.DEVNULL,
) -> AsyncIterator[trio.Process]:
    """Run a program for the length of the block, as the leader of a process group, which ends with the block."""
    # Bytecode is kept, so that a server does not compile its modules at each start.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **(variables or {})}
    with log.open("wb") as stderr:
        process = await trio.lowlevel.open_process(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            await end(process)


async def end(process: trio.Process) -> None:
    """Kill a process and those that it started, which may outlive it: the load generator starts a server on stdio."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


async def output_of(
    command: Sequence[str | Path],
    log: Path,
    *,
    folder: Path = ROOT,
    variables: Mapping[str, str] | None = None,
    seconds: float = 600.0,
) -> str:
    """Run a program to its end; returns what it wrote to stdout.

    Raises `ProcessFailed`, with the last lines of its stderr, if it fails or takes more than `seconds`.
    """
    said = b""
    status = None
    async with child(command, log, folder=folder, variables=variables, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with trio.move_on_after(seconds):
            async for data in process.stdout:
                said += data
            status = await process.wait()
        await process.stdout.aclose()
    if status != 0:
        how = f"took more than {seconds:g} seconds" if status is None else f"ended with status {status}"
        raise ProcessFailed(f"{Path(command[0]).name} {how}:\n{tail(log)}")
    return said.decode()
