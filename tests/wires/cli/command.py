"""Running `trio-mcp` as a person does: as a process, with or without a terminal. Every wait is bounded."""

from __future__ import annotations

import os
import pty
import select
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[3]
TRAVEL = str(ROOT / "examples" / "travel.py")
FORMS = str(Path(__file__).with_name("form_server.py"))
COMMAND = [sys.executable, "-m", "trio_mcp"]
SECONDS = 30.0
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'transports'}"}
NO_KEYS = {name: value for name, value in ENVIRONMENT.items() if name not in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")}
SAMPLING = [sys.executable, str(Path(__file__).with_name("sampling_server.py"))]
"""The command of a server whose tools ask a model and a user."""


def trio_mcp(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command with no terminal and an empty stdin."""
    return subprocess.run(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
        env=ENVIRONMENT,
    )


def refused(status: int, *arguments: str) -> str:
    """The one line that the command fails with; it has this status and says nothing else."""
    done = trio_mcp(*arguments)
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("trio-mcp")
    return done.stderr.splitlines()[-1]


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command as a process that goes on; it is killed at the end if it still runs."""
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=SECONDS)


def announced(process: subprocess.Popen[str]) -> str:
    """The next URL at which the command says that it serves."""
    assert process.stderr is not None
    return next(line for line in process.stderr if "serves MCP at" in line).split()[-1]


def server_file(folder: Path, text: str) -> str:
    """A file with this text, which has imported `Server`."""
    file = folder / "shop.py"
    file.write_text(f"from trio_mcp import Server\n{text}")
    return str(file)


def running(target: str) -> str:
    """The command line of a process that serves this."""
    return shlex.join([*COMMAND, "run", target])


# Makes the terminal the one that Ctrl-C at it interrupts, then becomes the command.
AT_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Person:
    """Sits at a terminal in which the command runs. What it writes to stdout and to stderr shows on one screen."""

    def __init__(self, *arguments: str) -> None:
        self.screen = ""
        self._terminal, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", AT_TERMINAL, *COMMAND[1:], *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            cwd=ROOT,
            env=ENVIRONMENT,
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        os.close(self._terminal)
        self._process.kill()
        self._process.wait(SECONDS)

    def sees(self, text: str) -> None:
        """Wait until this shows, after what was seen before."""
        deadline = time.monotonic() + SECONDS
        while text not in self.screen:
            assert time.monotonic() < deadline, self.screen
            assert self._read(deadline), f"it ended before {text!r} showed: {self.screen}"
        self.screen = self.screen.partition(text)[2]

    def enters(self, line: str) -> None:
        self.presses(f"{line}\n")

    def presses(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def waits(self) -> int:
        """Wait for the end; returns the exit status."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            assert time.monotonic() < deadline, self.screen
        return self._process.wait(SECONDS)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return True
        try:
            chunk = os.read(self._terminal, 65536)
        except OSError:  # Linux says EIO when the other side is closed
            return False
        self.screen += chunk.decode()
        return bool(chunk)
