"""Clients that are not written in Python against our server: the TypeScript SDK's, and a bare `curl`.

The TypeScript SDK is installed once, into the folder that `TRIO_MCP_NODE_CACHE` names (else one for temporary files).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from peer_server import PIXEL
from processes import HERE, child_environment, over_stdio

PACKAGE = "@modelcontextprotocol/client"
INSTALL_TIMEOUT = 60.0
LIMIT = 30.0

ERAS = {"auto": "2026-07-28", "legacy": "2025-11-25"}


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """A folder in which node finds the SDK."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: the TypeScript client is not tried")
    folder = Path(os.environ.get("TRIO_MCP_NODE_CACHE", Path(tempfile.gettempdir()) / "trio_mcp_node"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "node_modules" / PACKAGE / "package.json").exists():
            install(folder)
        shutil.copy(HERE / "typescript_client.mjs", folder)
    return folder


def install(folder: Path) -> None:
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--fetch-retries=0"]
    command += ["--prefix", str(folder), f"{PACKAGE}@2"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT, cwd=folder)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        pytest.skip(f"npm could not install {PACKAGE}: {said[0] if said else error}")


@pytest.fixture(params=list(ERAS))
def era(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["stdio", "http"])
def target(request: pytest.FixtureRequest) -> str | list[str]:
    if request.param == "http":
        return request.getfixturevalue("peer_url")
    return over_stdio(HERE / "peer_server.py")


def text_of(result: Mapping[str, Any]) -> str:
    [block] = result["content"]
    return block["text"]


async def test_the_typescript_client_calls_asks_and_cancels(
    node_folder: Path, target: str | list[str], era: str
) -> None:
    said = {"target": target, "env": child_environment(), "era": era}
    command = ["node", str(node_folder / "typescript_client.mjs"), json.dumps(said)]
    with trio.fail_after(LIMIT):
        done = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    seen = json.loads(done.stdout)

    assert seen["version"] == ERAS[era]
    assert seen["server"]["name"] == "peer"
    assert {"place", "plan_trip", "hold"} <= set(seen["tools"])
    assert seen["place"]["structuredContent"] == {"name": "Žižkov ⛰", "height": 263.5, "tags": ["hill"]}
    assert seen["picture"]["content"] == [{"type": "image", "data": PIXEL, "mimeType": "image/png"}]
    assert (seen["refused"]["isError"], text_of(seen["refused"])) == (True, "no seat is left")
    assert seen["unknown"]["code"] == -32602
    assert "Unknown tool: nowhere" in seen["unknown"]["message"]
    assert text_of(seen["trip"]) == "Ada 3 100.5 True window wifi"
    assert seen["sum"]["structuredContent"] == {"result": 42}
    assert text_of(seen["thought"]) == "m-1: So be it."
    assert seen["folders"]["structuredContent"] == {"result": ["home=file:///home/ada"]}
    # this client drops reports that reach it in one piece with the answer; that they arrive at all, `hold` shows
    assert seen["progress"] == [1, 2, 3][: len(seen["progress"])]
    over_modern_http = era == "auto" and isinstance(target, str)
    assert text_of(seen["ended"]) == ("disconnect" if over_modern_http else "client")


# curl


async def curl(url: str, message: object, *headers: str) -> tuple[int, dict[str, str], str]:
    """Status, headers and body of a POST, as the lines in the documentation send it."""
    command = ["curl", "--silent", "--show-error", "--max-time", "10", "--include", url]
    command += ["-H", "Content-Type: application/json", "-H", "Accept: application/json, text/event-stream"]
    for header in headers:
        command += ["-H", header]
    command += ["-d", json.dumps(message)]
    with trio.fail_after(LIMIT):
        done = await trio.run_process(command, capture_stdout=True)
    head, _, body = done.stdout.decode().partition("\r\n\r\n")
    status, *lines = head.split("\r\n")
    named = dict(line.split(": ", 1) for line in lines)
    return int(status.split()[1]), {name.lower(): value for name, value in named.items()}, body


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


@needs_curl
async def test_curl_opens_a_session_and_calls_a_tool_in_it(peer_url: str) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "curl", "version": "8"}}
    status, headers, body = await curl(peer_url, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    assert (status, json.loads(body)["result"]["protocolVersion"]) == (200, "2025-11-25")
    session = (f"Mcp-Session-Id: {headers['mcp-session-id']}", "MCP-Protocol-Version: 2025-11-25")

    status, _, body = await curl(peer_url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, *session)
    assert (status, body) == (202, "")

    params = {"name": "number", "arguments": {"a": 2, "b": 3}}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
    status, headers, body = await curl(peer_url, call, *session)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(body)["result"]["structuredContent"] == {"result": 5}


@needs_curl
async def test_curl_calls_a_tool_in_one_modern_request(peer_url: str) -> None:
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "curl", "version": "8"},
    }
    params = {"name": "number", "arguments": {"a": 2, "b": 3}, "_meta": meta}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    mirrored = ("MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: number")
    status, headers, body = await curl(peer_url, call, *mirrored)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert "mcp-session-id" not in headers
    assert json.loads(body)["result"]["structuredContent"] == {"result": 5}


@needs_curl
async def test_curl_is_told_what_it_forgot(peer_url: str) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    status, _, body = await curl(peer_url, call)
    assert status == 400
    assert "Mcp-Session-Id" in json.loads(body)["error"]["message"]
