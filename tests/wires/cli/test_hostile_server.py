"""A server that writes escape sequences, wherever it may write text, cannot command the terminal of `trio-mcp call`."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from command import trio_mcp

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
UNSAFE = set("\x1b\x07\x9b\u202e")
TOOL = {"name": "greet", "inputSchema": {"type": "object"}}
OPENED = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": f"s{ESCAPE}", "version": "1"},
}

SERVER = """
import json, sys
replies = json.loads(sys.argv[1])
for line in sys.stdin:
    message = json.loads(line)
    for reply in replies.get(message.get("method"), []):
        if isinstance(reply, str):
            print(reply, flush=True)
        else:
            print(json.dumps({"jsonrpc": "2.0", **({} if "method" in reply else {"id": message["id"]}), **reply}), flush=True)
"""

Replies = dict[str, list[Any]]


def called(error: Any) -> Replies:
    return {"tools/list": [{"result": {"tools": [TOOL]}}], "tools/call": [error]}


@pytest.mark.parametrize(
    ("replies", "arguments"),
    [
        (called({"error": {"code": -32602, "message": f"no{ESCAPE}\nline"}}), ["greet"]),
        (called({"result": {"content": [{"type": ESCAPE}]}}), ["greet"]),
        (called({"result": {"isError": True, "content": [{"type": "text", "text": ESCAPE}]}}), ["greet"]),
        ({"tools/list": [{"result": {"tools": [{**TOOL, "name": f"x{ESCAPE}"}]}}]}, ["greet"]),
        ({"tools/list": [{"result": {"tools": [{**TOOL, "description": ESCAPE}]}}]}, ["--list"]),
        ({"tools/list": [{"result": {"tools": [{**TOOL, "inputSchema": {"$ref": ESCAPE}}]}}]}, ["--list"]),
        ({"tools/list": [{"error": {"code": 1, "message": ESCAPE}}]}, ["--list"]),
        ({"tools/list": [f'{{"jsonrpc": "{ESCAPE}"}}', {"result": {"tools": [TOOL]}}]}, ["--list"]),
        ({"initialize": [{"error": {"code": -32603, "message": ESCAPE}}]}, ["--list"]),
        ({"initialize": [{"result": {**OPENED, "protocolVersion": ESCAPE}}]}, ["--list"]),
    ],
    ids=["error", "result", "tool error", "name", "description", "schema", "list", "message", "handshake", "version"],
)
@pytest.mark.parametrize("debug", [[], ["--debug"]], ids=["", "debug"])
def test_what_a_server_writes_is_shown_without_control_characters(
    tmp_path: Path, replies: Replies, arguments: list[str], debug: list[str]
) -> None:
    file = tmp_path / "server.py"
    file.write_text(SERVER)
    answers: Replies = {"initialize": [{"result": OPENED}], **replies}
    target = shlex.join([sys.executable, str(file), json.dumps(answers)])
    done = trio_mcp("call", target, *arguments, "--mode", "2025-11-25", "--timeout", "20", *debug)
    assert UNSAFE.isdisjoint(done.stderr)
    assert UNSAFE.isdisjoint(done.stdout)
