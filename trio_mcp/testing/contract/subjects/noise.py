"""Tools of the contract's server that use the output and the input of their process."""

from __future__ import annotations

import os
import sys

import trio

from ....server import Server
from ..stage import Stage


def add_noisy_tools(server: Server, _stage: Stage) -> None:
    @server.tool
    async def print_everywhere() -> str:
        """Print in every way that Python has."""
        line = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"printed"}}'
        print(line)  # noqa: T201
        print(line, file=sys.stderr)  # noqa: T201
        os.write(1, line.encode() + b"\n")
        await trio.run_process([sys.executable, "-c", f"print({line!r})"], stdout=None, check=True)
        return "printed"

    @server.tool
    async def read_input() -> str:
        """Read from standard input to its end, and let a child do so."""
        command = [sys.executable, "-c", "import sys; sys.stdout.write(sys.stdin.read())"]
        child = await trio.run_process(command, stdin=sys.stdin, capture_stdout=True)  # pyright: ignore[reportArgumentType]  Trio passes a file on
        return sys.stdin.read() + child.stdout.decode()
