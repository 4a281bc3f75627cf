"""Instructions of one call, counted by valgrind's cachegrind: two runs, and their difference divided by the further calls.

CPU time of one version moves by a fifth on a shared machine, and this figure by less than 1 %: it says which of two versions
costs less, also beside other programs. It says nothing of waiting, of the kernel, and of caches.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import trio

from .calls import Calls, FirstAnswer, StdioCalls, on_stdio
from .environments import Unavailable
from .generator import Load, WrongAnswers
from .processes import child, log_file
from .running import Say, Settings, free_port, listening
from .targets import Installed
from .workload import Server, Workload

FEW, MANY = 500, 2500
"""Answers of the two runs. In the shorter one, what is done once has been done: the interpreter has specialised the code."""
SECONDS = 300.0
"""Of one run at most."""
EXIT_SECONDS = 30.0
COUNTED = re.compile(r"I\s+refs:\s+([\d,]+)")


async def count_instructions(
    workloads: Sequence[Workload], installed: Sequence[Installed], settings: Settings, say: Say
) -> dict[str, dict[str, int]]:
    """Return the instructions of a call for each workload and target; for the start, those of the process in millions.

    A workload that is no load of calls is left out. Raises `Unavailable` without valgrind.
    """
    if shutil.which("valgrind") is None:
        raise Unavailable("valgrind is not on PATH")
    found: dict[str, dict[str, int]] = {}
    for workload in workloads:
        if not isinstance(workload, StdioCalls | Calls | FirstAnswer):
            continue
        for each in installed:
            if workload.runs_on(each.target):
                say(f"{workload.name}, {each.target.name}")
                found.setdefault(workload.name, {})[each.target.name] = await of_workload(workload, each, settings)
    return found


async def of_workload(workload: StdioCalls | Calls | FirstAnswer, installed: Installed, settings: Settings) -> int:
    if isinstance(workload, FirstAnswer):
        return round(await of_run(workload, installed, settings, 1) / 1e6)
    few, many = [await of_run(workload, installed, settings, calls) for calls in (FEW, MANY)]
    return round((many - few) / (MANY - FEW))


async def of_run(
    workload: StdioCalls | Calls | FirstAnswer, installed: Installed, settings: Settings, calls: int
) -> int:
    """Serve under valgrind, and call; returns the instructions of the whole process."""
    counts = settings.scratch / "cachegrind"
    counts.unlink(missing_ok=True)
    valgrind = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")
    counted = replace(installed, under=(*valgrind, f"--log-file={counts}"))
    log = log_file(f"instructions-{installed.target.name}")
    log.touch()
    load = Load(SECONDS, 0.0, calls)
    server = Server(counted, settings.cores.server, log, settings.scratch)
    if isinstance(workload, Calls):
        await over_http(workload, server, load)
    else:
        await on_stdio(server, load, workload.in_flight if isinstance(workload, StdioCalls) else 1)
    return instructions_in(counts)


async def over_http(workload: Calls, server: Server, load: Load) -> None:
    """Serve, call, and let the server end by itself, since valgrind writes its count then."""
    port, installed = free_port(), server.installed
    command = installed.command(workload.wire, port)
    folder = installed.target.environment.folder
    async with child(command, server.log, folder=folder, variables=workload.variables) as process:
        await listening(process, port, server.log)
        await workload.measure(replace(server, port=port, pid=process.pid), load)
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(EXIT_SECONDS):
            await process.wait()


def instructions_in(file: Path) -> int:
    """Return what valgrind counted. Raises `WrongAnswers` if it was killed before it wrote that."""
    found = COUNTED.search(file.read_text(encoding="utf-8") if file.exists() else "")
    if found is None:
        raise WrongAnswers("valgrind did not write how many instructions it counted")
    return int(found[1].replace(",", ""))
