"""A server that writes escape sequences, wherever it may write text, cannot command the terminal of `trio-mcp call`."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import COMMAND, ENVIRONMENT, ROOT, SECONDS, Person, trio_mcp

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


FORGED = f"x{ESCAPE}\r\nstatus: completed"
TASK = {"taskId": "x", "status": "working", "createdAt": "then", "lastUpdatedAt": "now"}
FORM = {"type": "object", "properties": {FORGED: {"type": "string", "default": FORGED, "enum": [FORGED]}}}
SAMPLED = {"messages": [{"role": "user", "content": {"type": "text", "text": FORGED}}], "maxTokens": 5}
QUESTIONS = {
    "a": {"method": "elicitation/create", "params": {"mode": "form", "message": FORGED, "requestedSchema": FORM}},
    "b": {"method": "elicitation/create", "params": {"mode": "url", "message": FORGED, "url": f"https://{FORGED}"}},
    "c": {"method": "sampling/createMessage", "params": SAMPLED},
}
DISCOVERED = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
    "serverInfo": {"name": "s", "version": "1"},
    "ttlMs": 0,
    "cacheScope": "public",
}


def on_tasks(file: Path, replies: Replies, action: str, mode: str) -> subprocess.CompletedProcess[str]:
    file.write_text(SERVER)
    tasks = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
    opened = {**OPENED, "capabilities": {"tools": {}, "tasks": tasks}}
    answers: Replies = {"initialize": [{"result": opened}], "server/discover": [{"result": DISCOVERED}], **replies}
    target = shlex.join([sys.executable, str(file), json.dumps(answers)])
    words = [action, target] if action == "list" else [action, target, "x"]
    return trio_mcp("tasks", *words, "--mode", mode, "--timeout", "20")


@pytest.mark.parametrize("member", ["taskId", "status", "statusMessage", "createdAt"])
def test_what_a_listed_task_says_of_itself_stays_in_its_line(tmp_path: Path, member: str) -> None:
    listed = {"tasks/list": [{"result": {"tasks": [{**TASK, member: FORGED}]}}]}
    done = on_tasks(tmp_path / "server.py", listed, "list", "2025-11-25")
    assert UNSAFE.isdisjoint(done.stdout + done.stderr)
    assert len((done.stdout + done.stderr).splitlines()) == 1


@pytest.mark.parametrize(
    "members",
    [{"status": "input_required", "inputRequests": QUESTIONS}, {"statusMessage": FORGED}],
    ids=["asks", "says"],
)
def test_what_a_task_shows_cannot_pass_for_its_state(tmp_path: Path, members: dict[str, Any]) -> None:
    shown = {"tasks/get": [{"result": {"resultType": "complete", **TASK, "ttlMs": 5000, **members}}]}
    done = on_tasks(tmp_path / "server.py", shown, "show", "2026-07-28")
    assert done.returncode == 0, done.stderr
    assert UNSAFE.isdisjoint(done.stdout + done.stderr)
    assert "x\ufffd" in done.stderr
    assert "status: completed" not in done.stderr.splitlines()


def test_a_list_of_tasks_without_an_end_is_one_error(tmp_path: Path) -> None:
    page = {"tasks/list": [{"result": {"tasks": [TASK], "nextCursor": "same"}}]}
    done = on_tasks(tmp_path / "server.py", page, "list", "2025-11-25")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (4, "", 1)


# what a server writes to stderr

NOISY = """
import json, os, subprocess, sys
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        os.write(2, json.loads(sys.argv[1]).encode("latin-1") + "é\\r\\n".encode())
        if len(sys.argv) > 2:  # a process that outlives the server, and holds its stderr
            silent = subprocess.DEVNULL
            subprocess.Popen(["sleep", "10"], stdin=silent, stdout=silent, start_new_session=True)
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32000, "message": "not today"}}), flush=True)
os.write(2, b"goodbye")
"""


def noisy(tmp_path: Path, *arguments: str) -> list[str]:
    file = tmp_path / "server.py"
    file.write_text(NOISY)
    written = json.dumps(f"hello{ESCAPE}".encode().decode("latin-1") + "\x9b31m")
    target = shlex.join([sys.executable, str(file), written, *arguments])
    return ["call", target, "--list", "--mode", "legacy", "--timeout", "20"]


@pytest.mark.parametrize("arguments", [(), ("leaves a process",)], ids=["", "left behind"])
def test_the_stderr_of_a_server_reaches_a_terminal_without_control_characters(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    with Person(*noisy(tmp_path, *arguments)) as person:
        assert person.waits() == 4
    first, last, error = person.screen.splitlines()
    assert UNSAFE.isdisjoint(person.screen)
    assert first.startswith("hello\ufffd")
    assert first.endswith("é")
    assert last == "goodbye", "the command shows all of it, and then its own line"
    assert "not today" in error


def test_the_stderr_of_a_server_reaches_a_file_as_it_is(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, *noisy(tmp_path)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=SECONDS,
        cwd=ROOT,
        env=ENVIRONMENT,
    )
    assert done.stderr.startswith(f"hello{ESCAPE}".encode() + b"\x9b31m\xc3\xa9\r\n")
