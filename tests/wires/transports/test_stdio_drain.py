"""The end of stdin: requests that came before it are answered if they end soon."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
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
CLIENT: Any = {"name": "pipe", "version": "1"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": CLIENT,
}


def legacy(name: str, arguments: Any, capabilities: Any = {}) -> list[Any]:  # noqa: B006
    params = {"protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": CLIENT}
    return [
        {"id": 1, "method": "initialize", "params": params},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments}},
    ]


def modern(name: str, arguments: Any) -> list[Any]:
    listen = {"notifications": {"toolsListChanged": True}, "_meta": META}
    return [
        {"id": 1, "method": "subscriptions/listen", "params": listen},
        {"id": 2, "method": "tools/call", "params": {"name": name, "arguments": arguments, "_meta": META}},
    ]


def lines(messages: list[Any]) -> bytes:
    return b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in messages)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "end.py"
    path.write_text(SERVER)
    return path


def piped(script: Path, messages: list[Any], drain: str) -> tuple[Any, float]:
    """The answer to the request 2, and how long the process took."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, str(script), drain],
        input=lines(messages),
        capture_output=True,
        timeout=PATIENCE,
        check=True,
        env=ENVIRONMENT,
    )
    answers = [each for each in map(json.loads, done.stdout.splitlines()) if each.get("id") == 2]
    return (answers[0] if answers else None), time.monotonic() - began


@pytest.mark.parametrize("opening", [legacy, modern])
@pytest.mark.parametrize(("tool", "arguments", "text"), [("plain", {}, "plain"), ("waits", {"seconds": 0.2}, "waited")])
def test_a_request_before_the_end_of_stdin_is_answered(
    script: Path, opening: Any, tool: str, arguments: Any, text: str
) -> None:
    answer, _ = piped(script, opening(tool, arguments), "20")
    assert answer["result"]["content"][0]["text"] == text


@pytest.mark.parametrize("opening", [legacy, modern])
def test_a_request_that_takes_longer_is_cancelled(script: Path, opening: Any) -> None:
    answer, took = piped(script, opening("waits", {"seconds": 1000}), "0.3")
    assert answer is None or "error" in answer or answer["result"]["isError"]
    assert took < PATIENCE


def test_a_request_that_asks_its_client_is_cancelled_with_the_others(script: Path) -> None:
    answer, took = piped(script, legacy("asks", {}, {"elicitation": {}}), "0.3")
    assert answer is None or "error" in answer or answer["result"]["isError"]
    assert took < PATIENCE


def test_the_last_request_needs_no_line_end(script: Path) -> None:
    sent = lines(legacy("plain", {}))[:-1]
    done = subprocess.run(
        [sys.executable, str(script), "20"], input=sent, capture_output=True, timeout=PATIENCE, env=ENVIRONMENT
    )
    assert b"plain" in done.stdout


def test_without_a_drain_nothing_is_waited_for(script: Path) -> None:
    answer, _ = piped(script, legacy("waits", {"seconds": 0.3}), "0")
    assert answer is None or "waited" not in json.dumps(answer)


def test_a_stream_of_changes_does_not_hold_up_the_end(script: Path) -> None:
    _, took = piped(script, modern("plain", {}), "1000")
    assert took < PATIENCE


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
    command = [sys.executable, "-m", "trio_mcp", "run", str(script), "--drain"]
    found = {}
    for drain in ("0", "20"):
        done = subprocess.run(
            [*command, drain],
            input=lines(legacy("waits", {"seconds": 0.3})),
            capture_output=True,
            timeout=PATIENCE,
            env=ENVIRONMENT,
        )
        found[drain] = b"waited" in done.stdout
    assert found == {"0": False, "20": True}
    wrong = subprocess.run([*command, "-1"], input=b"", capture_output=True, timeout=PATIENCE, env=ENVIRONMENT)
    assert wrong.returncode == 2
