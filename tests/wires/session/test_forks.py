"""A tool that forks the process of its server."""

from __future__ import annotations

import subprocess
import sys

import pytest

FORKING = """
import os
from trio_mcp import Server
server = Server("forking")

@server.tool
async def fork() -> str:
    return forked()

@server.tool
def fork_in_a_thread() -> str:
    return forked()

def forked() -> str:
    return "child" if os.fork() == 0 else "parent"

server.run()
"""

TALK = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    '"clientInfo":{"name":"t","version":"1"}}}\n'
    '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"TOOL","arguments":{}}}\n'
)


@pytest.mark.parametrize("tool", ["fork", "fork_in_a_thread"])
def test_a_forked_copy_of_the_server_answers_no_client_and_ends(tool: str) -> None:
    with subprocess.Popen([sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(TALK.replace("TOOL", tool).encode())
        process.stdin.flush()
        process.stdout.readline()
        answer = process.stdout.readline()
        rest, _ = process.communicate(timeout=8)  # until no process has the pipe any more
    assert b'"parent"' in answer
    assert rest == b""
