"""Running the suite: against the everything server on a separate port, and with our client, one scenario at a time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import trio
from counting import Outcome, read_outcomes
from selections import EXCUSED, Selection
from suites import SetupError, Suite

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SERVER = ROOT / "examples" / "everything_server.py"
RELAY = ROOT / "tests" / "wires" / "interop" / "relay_app.py"
IMPORTS = os.pathsep.join([str(ROOT), str(ROOT / "transports")])
"""What the server and the client import is this checkout, whatever the environment has installed."""

START_TIMEOUT = 30.0
RUN_TIMEOUT = 240.0
"""Seconds for one run of the suite."""

CLIENT_TIMEOUT = 30.0
"""Seconds for one client; the suite's own watch."""

POLL = 0.05

CLIENT_COMMAND = 'sh "$CONFORMANCE_HERE/client_exit.sh"'
"""The suite splits a command at spaces, so paths travel in the environment; the shell that it starts puts them in."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a selection."""

    selection: Selection
    outcomes: Sequence[Outcome]
    seconds: float

    @property
    def failed(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if not outcome.passed]


class Driver:
    """Runs selections, and keeps what the suite writes below one folder. Selections with the same flags share a run."""

    def __init__(self, suites: Mapping[str, Suite], results: Path, url: str) -> None:
        self._suites = suites
        self._results = results
        self._url = url
        self._done: set[Path] = set()

    async def run(self, selection: Selection, scenarios: Sequence[str], *, whole: bool) -> Ran:
        """Run these scenarios of a selection; `whole` says that they are all it has."""
        began = trio.current_time()
        excused = {name: EXCUSED.get((selection.label, name), ()) for name in scenarios}
        exits: dict[str, int | None] = {}
        if selection.role == "server" and whole:
            folder = await self._server_at_once(selection)
        elif selection.role == "server":
            folder = await self._server_singly(selection, scenarios)
        else:
            folder = self._folder(selection.label)
            for scenario in scenarios:
                exits[scenario] = await self._client(selection, scenario, folder)
        outcomes = read_outcomes(folder, selection.role, scenarios, exits=exits, excused=excused)
        return Ran(selection, outcomes, trio.current_time() - began)

    async def _server_at_once(self, selection: Selection) -> Path:
        folder = self._folder(f"server {selection.version} {' '.join(selection.whole)}")
        if folder not in self._done:
            await self._suite(selection, folder, "server", "--url", self._url, *selection.whole)
            self._done.add(folder)
        return folder

    async def _server_singly(self, selection: Selection, scenarios: Sequence[str]) -> Path:
        folder = self._folder(selection.label)
        for scenario in scenarios:
            await self._suite(
                selection, folder, "server", "--url", self._url, "--scenario", scenario, *selection.single
            )
        return folder

    async def _client(self, selection: Selection, scenario: str, folder: Path) -> int | None:
        """How the client ended, which the suite does not tell: it takes a client that was killed for one that exited with 0."""
        status = folder / "exit_status"
        status.unlink(missing_ok=True)
        flags = ["--command", CLIENT_COMMAND, "--timeout", f"{CLIENT_TIMEOUT * 1000:.0f}", "--scenario", scenario]
        paths = {"PYTHON": sys.executable, "HERE": str(HERE), "EXIT_STATUS": str(status)}
        environment = {f"CONFORMANCE_{name}": path for name, path in paths.items()}
        await self._suite(selection, folder, "client", *flags, *selection.single, environment=environment)
        said = status.read_text().strip() if status.exists() else ""
        return int(said) if said.isdecimal() else None

    async def _suite(
        self, selection: Selection, folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> None:
        """Run the suite once. What it says is kept; how it ends is not asked, since what it wrote down is counted."""
        command = self._suites[selection.version].command(*arguments, "-o", str(folder))
        everything = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": IMPORTS, **(environment or {})}
        with (folder / "suite.log").open("ab") as log, trio.move_on_after(RUN_TIMEOUT):
            await trio.run_process(command, stdout=log, stderr=log, check=False, env=everything)

    def _folder(self, label: str) -> Path:
        folder = self._results / re.sub(r"[^A-Za-z0-9.-]+", "-", label)
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class Served(Enum):
    """How the everything server is reached: the arguments of Python."""

    ALONE = (str(SERVER), "http", "0")
    RELAYED = (str(RELAY), "http", sys.executable, str(SERVER))
    """By a proxy, which starts a server for each session."""
    ON_UVICORN = (str(HERE / "on_uvicorn.py"),)


@asynccontextmanager
async def served(log: Path, server: Served = Served.ALONE) -> AsyncIterator[str]:
    """The URL of the everything server, for the length of the block. What it says goes into `log`.

    Raises:
        SetupError: it did not start to serve.
    """
    command = [sys.executable, *server.value]
    with log.open("wb") as said:
        process = await trio.lowlevel.open_process(
            command, stderr=said, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": IMPORTS}
        )
    try:
        yield await announced(process, log)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def announced(process: trio.Process, log: Path) -> str:
    """The URL that the server says it serves at, once it does."""
    with trio.move_on_after(START_TIMEOUT):
        while process.poll() is None:
            if found := re.search(rb" serves MCP at (\S+)\n", await trio.Path(log).read_bytes()):
                return found[1].decode()
            await trio.sleep(POLL)
    raise SetupError(f"the server did not start to serve; {log} has what it said")
