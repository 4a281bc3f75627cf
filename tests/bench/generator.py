"""The load generator: a closed loop in C, which checks every answer."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from certificates import make_certificate

from .environments import Unavailable
from .paths import BUILD, CERTIFICATE, GENERATOR_SOURCE, ROOT
from .processes import log_file, output_of, tail

PROGRAM = BUILD / "mcpload"
SLOW = (sys.executable, str(Path(__file__).with_name("tls_load.py")))
"""The generator in Python, which takes the modes of one call at a time."""
SLACK = 120.0
"""Seconds that a run may take over its length, so that a server may start slowly."""

FIRST_WARMUP = 4
"""How many times as long a server warms up that was just started: it compiles what it runs often."""


class WrongAnswers(Exception):
    """A server's answers were not those that it has to give."""


@dataclass(frozen=True)
class Load:
    """How long the load lasts.

    Attributes:
        duration: Seconds that are measured.
        warmup: Seconds before that.
        calls: If not 0, the load ends after so many answers, without a warmup, and fails after `duration`.
    """

    duration: float
    warmup: float
    calls: int = 0

    def at_first(self) -> Load:
        """Return the load for a server that was just started."""
        return Load(self.duration, FIRST_WARMUP * self.warmup)


@dataclass(frozen=True)
class Report:
    """What the load generator saw.

    Attributes:
        cpu: CPU time of the server for each call, in µs.
        first_answer: Time from the start of the process to its first answer, in ms; only on stdio.
        calls: How many were answered.
    """

    cpu: float
    first_answer: float
    calls: int


async def build() -> None:
    """Compile the load generator if its source is newer, and make a certificate. Raises `Unavailable` without gcc or taskset."""
    make_certificate(CERTIFICATE)
    for program in ("gcc", "taskset"):
        if shutil.which(program) is None:
            raise Unavailable(f"{program} is not on PATH")
    sources = sorted(GENERATOR_SOURCE.glob("*.c"))
    newest = max(source.stat().st_mtime for source in GENERATOR_SOURCE.iterdir())
    if not PROGRAM.exists() or PROGRAM.stat().st_mtime < newest:
        await output_of(["gcc", "-O2", "-w", "-o", PROGRAM, *sources], log_file("gcc"))


async def generate(
    mode: str,
    load: Load,
    options: Mapping[str, object],
    texts: Mapping[str, str],
    *,
    log: Path,
    scratch: Path,
    server: Sequence[str] = (),
    folder: Path = ROOT,
    program: Sequence[str | Path] = (PROGRAM,),
) -> Report:
    """Call the server until the time is over.

    Args:
        options: Of the generator, without the dashes.
        texts: Options that name a file, with the text for it.
        log: Where the generator, and a server on stdio, write to.
        scratch: The folder for the files.
        server: The command of a server on stdio, which runs in `folder`.
        program: The command of the generator.

    Raises `ProcessFailed` if the generator fails, which it does when the server ends, and `WrongAnswers` if an answer is wrong.
    """
    command: list[str | Path] = [*program, mode, "--duration", str(load.duration), "--warmup", str(load.warmup)]
    for name, value in options.items():
        command += [f"--{name}", str(value)]
    if load.calls:
        command += ["--calls", str(load.calls)]
    for name, text in texts.items():
        file = scratch / name
        file.write_text(text, encoding="utf-8")
        command += [f"--{name}", file]
    if server:
        command += ["--", *server]
    seconds = load.duration + load.warmup + SLACK
    said = json.loads(await output_of(command, log, folder=folder, seconds=seconds))
    if said["errors"]:
        raise WrongAnswers(f"{said['errors']} of {said['calls']} answers were wrong:\n{tail(log)}")
    if not said["calls"]:
        raise WrongAnswers(f"no call was answered in {load.duration:g} seconds")
    return Report(said["cpu_us"], said["first_ms"], said["calls"])
