"""Opening the MCP Inspector, a program of the MCP project for browsers, which npx runs: `trio-mcp dev --inspector`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import trio

from ..errors import CommandError, Status

PACKAGE: Final = "@modelcontextprotocol/inspector@2"
"""The versions whose options these are: a `--server-url` with its `--transport` and `--protocol-era`."""
OLDEST_NODE: Final = (22, 19)
ERAS: Final = ("auto", "modern", "legacy")
END_SECONDS: Final = 5.0

NO_NPX: Final = (
    "--inspector needs npx, which comes with Node.js 22.19 or newer (https://nodejs.org). Without it, leave --inspector out, and "
    "open the Inspector where there is Node.js, with the URL that is shown"
)


def inspector_command(npx: str, url: str, era: str, *, sse: bool = False) -> list[str]:
    """Return the command that opens the Inspector for a server.

    Args:
        npx: the program.
        url: of the server.
        era: "auto", "modern" or "legacy".
        sse: the URL is one of HTTP+SSE, which is of the legacy era.
    """
    spoken = (
        ["--transport", "sse", "--protocol-era", "legacy"] if sse else ["--transport", "http", "--protocol-era", era]
    )
    # Without -y npx asks at the terminal whether it may install the package.
    return [npx, "-y", PACKAGE, "--server-url", url, *spoken]


def find_npx() -> str:
    """Return npx. Raises `CommandError`, which says what to do, if there is none."""
    npx = shutil.which("npx")
    if npx is None:
        raise CommandError(NO_NPX, Status.UNREACHABLE)
    return npx


def outdated_node() -> str | None:
    """Return the version of Node.js if the Inspector does not run on it; None if it does, or the version is not known."""
    node = shutil.which("node")
    if node is None:
        return None
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=END_SECONDS)  # noqa: PLW1510, S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"v(\d+)\.(\d+)", done.stdout)
    return done.stdout.strip() if found is not None and (int(found[1]), int(found[2])) < OLDEST_NODE else None


async def run_inspector(command: Sequence[str]) -> int:
    """Run the Inspector until it ends; return its exit status. A cancel ends it, and what it has started."""
    # Its output is for the person at the terminal, as that of this command is.
    process = await trio.lowlevel.open_process(
        [*command], stdin=subprocess.DEVNULL, stdout=sys.stderr.fileno(), start_new_session=True
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            await end_group(process)  # noqa: ASYNC102  it has a shield and a time limit


async def end_group(process: trio.Process) -> None:
    """End a process and those that it has started."""
    with trio.CancelScope(shield=True):
        signal_group(process, signal.SIGTERM)
        with trio.move_on_after(END_SECONDS):
            await process.wait()
            return
        signal_group(process, signal.SIGKILL)
        await process.wait()


def signal_group(process: trio.Process, number: signal.Signals) -> None:
    # npx starts a shell, which starts the Inspector: a signal to npx alone would leave that behind.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
