"""Servers in processes of their own, as the tests of this folder need them."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

HERE = Path(__file__).parent
PROJECT = HERE.parents[2]

START_TIMEOUT = 30.0
END_TIMEOUT = 10.0

ANNOUNCED = " serves MCP at "


def child_environment() -> dict[str, str]:
    """What a child process needs to import what this process imports."""
    return {"PYTHONPATH": os.pathsep.join([str(PROJECT), str(PROJECT / "transports")])}


def over_stdio(script: Path) -> list[str]:
    return [sys.executable, str(script), "stdio"]


@contextmanager
def over_http(argv: Sequence[str]) -> Iterator[str]:
    """Run a server that announces its URL on stderr; the URL, for as long as the block takes."""
    with subprocess.Popen(argv, stderr=subprocess.PIPE, env=os.environ | child_environment()) as process:
        assert process.stderr is not None
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(target=read_lines, args=(process.stderr, lines), daemon=True)
        reader.start()
        try:
            yield announced(lines)
        finally:
            end(process)
            reader.join(END_TIMEOUT)


def read_lines(stream: IO[bytes], lines: queue.Queue[str]) -> None:
    """Everything on stderr, shown as it comes, so that a failing test shows the server's side too."""
    for line in stream:
        text = line.decode(errors="replace").rstrip()
        print(text, file=sys.stderr)
        lines.put(text)
    lines.put("")


def announced(lines: queue.Queue[str]) -> str:
    seen = []
    while line := lines.get(timeout=START_TIMEOUT):
        seen.append(line)
        if ANNOUNCED in line:
            return line.partition(ANNOUNCED)[2].partition(",")[0].strip()
    raise AssertionError("the server ended before it served anything:\n" + "\n".join(seen))


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
