"""The servers of this folder in processes, and the revisions and transports over which clients are tried with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio
from serving import IMPORTS
from wire_terms import MODERN, NEWEST_LEGACY

HERE = Path(__file__).parent
END_TIMEOUT = 10.0
CLIENT_TIMEOUT = 60.0
"""Seconds; FastMCP needs several to be imported."""
ANNOUNCED = b" serves MCP at "

FIRST_WITH_FORMS = "2025-06-18"
"""And with structured results."""
NEWEST = [(revision, transport) for revision in (MODERN, NEWEST_LEGACY) for transport in ("stdio", "http")]
OLDER = [
    (revision, transport)
    for revision in ("2024-11-05", "2025-03-26", FIRST_WITH_FORMS)
    for transport in ("stdio", "http", "sse")
]
PEERS = NEWEST + OLDER

Target = Callable[[str, str], "str | list[str]"]
"""Where a script of this folder is reached over a transport: a command for stdio, else the URL of a shared process."""


def command_of(script: str, transport: str) -> list[str]:
    """Return the command that serves a script of this folder over a transport."""
    return [sys.executable, str(HERE / script), transport]


@contextmanager
def over_http(command: list[str]) -> Iterator[str]:
    """Run a server that announces its URL on stderr, and give that URL to the block."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ | IMPORTS) as process:
        assert process.stderr is not None
        try:
            announced = next((line for line in process.stderr if ANNOUNCED in line), None)
            assert announced, f"{command} ended before it served anything"
            # The pipe must not fill up, and a failing test shows what the server wrote.
            copying = threading.Thread(
                target=shutil.copyfileobj, args=(process.stderr, sys.__stderr__.buffer), daemon=True
            )
            copying.start()
            yield announced.partition(ANNOUNCED)[2].partition(b",")[0].strip().decode()
        finally:
            process.terminate()
            try:
                process.wait(END_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        # It reads until the end of the pipe, which must not be closed in front of it.
        copying.join(END_TIMEOUT)


@contextmanager
def reached(command: list[str], transport: str) -> Iterator[str | list[str]]:
    """Where a server is reached: by its command over stdio, else by the URL that it announces."""
    if transport == "stdio":
        yield command
    else:
        with over_http(command) as url:
            yield url


async def said_by(*command: str, **options: Any) -> dict[str, Any]:
    """Run a client that is controlled by JSON, and return what it saw."""
    line = [*command, json.dumps({"env": IMPORTS, **options})]
    with trio.fail_after(CLIENT_TIMEOUT):
        done = await trio.run_process(line, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen
