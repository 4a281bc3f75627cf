"""The end of stdin: requests that came before it are answered if they end soon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from peer import hello, modern_meta
from serving import IMPORTS

PATIENCE = 30.0
ENVIRONMENT = {**os.environ, **IMPORTS}
SERVER = """
import sys, time
import trio
from trio_mcp import Context, Server

server = Server("end")

@server.tool
def plain() -> str:
    return "plain"

@server.tool
async def waits(seconds: float) -> str:
    await trio.sleep(seconds)
    return "waited"

@server.tool
async def asks(ctx: Context) -> str:
    return str(await ctx.elicit("Sure?"))

@server.tool
async def writes() -> str:
    print("writes", file=sys.stderr, flush=True)
    await trio.sleep(0.5)
    return "written"

if __name__ == "__main__":
    server.run("stdio", drain=float(sys.argv[1]))
"""


def legacy(name: str, arguments: Any, capabilities: Any = {}) -> list[Any]:  # noqa: B006
    return [
        {"id": 1, "method": "initialize", "params": hello("2025-06-18", capabilities)},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
    ]


def modern(name: str, arguments: Any) -> list[Any]:
    meta = modern_meta({})
    listen = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    return [
        {"id": 1, "method": "subscriptions/listen", "params": listen},
        {"id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments, "_meta": meta}},
    ]


def lines(messages: list[Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "end.py"
    path.write_text(SERVER)
    return path


def piped(sent: bytes, *command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, *command], input=sent, capture_output=True, timeout=PATIENCE, env=ENVIRONMENT
    )


def answer_of(script: Path, messages: list[Any], drain: str, *, end: bytes = b"\n") -> Any:
    """The answer to the request 2, if there is one."""
    done = piped(lines(messages).removesuffix(b"\n") + end, str(script), drain)
    assert done.returncode == 0
    return next((each for each in map(json.loads, done.stdout.splitlines()) if each.get("id") == 2), None)


@pytest.mark.parametrize("opening", [legacy, modern])
@pytest.mark.parametrize(
    ("tool", "arguments", "text", "end"),
    [("plain", {}, "plain", b"\n"), ("waits", {"seconds": 0.2}, "waited", b"\n"), ("plain", {}, "plain", b"")],
    ids=["at once", "soon", "without a line end"],
)
def test_a_request_before_the_end_of_stdin_is_answered_also_beside_a_stream_of_changes(
    script: Path, opening: Any, tool: str, arguments: Any, text: str, end: bytes
) -> None:
    answer = answer_of(script, opening(tool, arguments), "1000", end=end)
    assert answer["result"]["content"][0]["text"] == text


@pytest.mark.parametrize(
    ("messages", "drain"),
    [
        (legacy("waits", {"seconds": 1000}), "0.3"),
        (modern("waits", {"seconds": 1000}), "0.3"),
        (legacy("asks", {}, {"elicitation": {}}), "0.3"),
        (legacy("waits", {"seconds": 0.3}), "0"),
    ],
    ids=["a legacy call", "a modern call", "a call that asks its client", "without a drain"],
)
def test_a_request_that_takes_longer_is_cancelled(script: Path, messages: list[Any], drain: str) -> None:
    answer = answer_of(script, messages, drain)
    assert answer is None or "error" in answer or answer["result"]["isError"]


@pytest.mark.parametrize("end", ["stdout is closed", "SIGTERM"])
def test_a_client_that_is_gone_and_a_signal_end_the_drain(script: Path, end: str) -> None:
    process = subprocess.Popen(
        [sys.executable, str(script), "1000"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        process.stdin.write(lines([*legacy("waits", {"seconds": 1000}), {**legacy("writes", {})[2], "id": 3}]))
        process.stdin.flush()
        while process.stderr.readline() != b"writes\n":
            pass
        if end == "stdout is closed":
            process.stdout.close()
            process.stdin.close()
        else:
            process.stdin.close()
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()


def test_the_command_line_has_the_option(script: Path) -> None:
    command = ["-m", "trio_mcp", "run", str(script), "--drain"]
    sent = lines(legacy("waits", {"seconds": 0.3}))
    assert [b"waited" in piped(sent, *command, drain).stdout for drain in ("0", "20")] == [False, True]
    assert piped(b"", *command, "-1").returncode == 2
