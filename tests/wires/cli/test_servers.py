"""The commands that look into servers (list, read, prompt, inspect, doctor), and run and serve, which pass servers on."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import COMMAND, ENVIRONMENT, SECONDS, Person, announced, refused, running, started, trio_mcp
from naming import unnamed

OFFERS = str(Path(__file__).with_name("offers_server.py"))
LISTED = """\
tools:
work
    Work, and ask in the middle.
resources:
note://today (text/plain)
    The note of today.
logo://small (image/png)
    A picture.
templates:
note://{day} (text/plain)
    The note of a day.
prompts:
plan day [style]
    Plan a day.
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server over HTTP."""
    with started("serve", OFFERS, "--port", "0", "--drain", "1") as process:
        yield announced(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


@pytest.fixture(scope="module")
def mcp_json(tmp_path_factory: pytest.TempPathFactory, url: str) -> str:
    """The file of a host, with the same server as a command and as a URL."""
    file = tmp_path_factory.mktemp("host") / "mcp.json"
    local = {"command": COMMAND[0], "args": [*COMMAND[1:], "run", OFFERS], "env": {"PYTHONPATH": "${PYTHONPATH}"}}
    file.write_text(json.dumps({"mcpServers": {"local": local, "web": {"url": url}}}))
    return str(file)


def test_every_kind_of_target_is_the_same_server(url: str, mcp_json: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", f"{ENVIRONMENT['PYTHONPATH']}:{Path(OFFERS).parent}")
    for target in (
        OFFERS,
        f"{OFFERS}:server",
        "offers_server",
        url,
        running(OFFERS),
        f"{mcp_json}:local",
        f"{mcp_json}:web",
    ):
        done = trio_mcp("list", target)
        assert (done.returncode, done.stdout) == (0, LISTED), (target, done.stderr)


def test_a_list_as_json_has_what_the_server_says(url: str) -> None:
    listed = json.loads(trio_mcp("list", url, "--json").stdout)
    assert {kind: len(items) for kind, items in listed.items()} == {
        "tools": 1,
        "resources": 2,
        "templates": 1,
        "prompts": 1,
    }
    assert listed["tools"][0]["inputSchema"]["type"] == "object"
    assert set(json.loads(trio_mcp("list", url, "--json", "--only", "prompts").stdout)) == {"prompts"}


def test_a_resource_is_read_as_it_is(url: str, tmp_path: Path) -> None:
    assert trio_mcp("read", url, "note://today").stdout == "Buy \x1b[31mlamps.\n"
    assert trio_mcp("read", url, "note://monday").stdout == "Nothing on monday.\n"
    contents = json.loads(trio_mcp("read", url, "note://today", "--json").stdout)["contents"]
    assert contents[0]["text"] == "Buy \x1b[31mlamps."
    file = tmp_path / "logo.png"
    assert trio_mcp("read", url, "logo://small", "--output", str(file)).returncode == 0
    assert file.read_bytes() == b"\x89PNG\x00"
    assert "none://x" in refused(4, "read", url, "none://x")


def test_a_resource_cannot_command_the_terminal_and_bytes_do_not_go_there(url: str) -> None:
    with Person("read", url, "note://today") as person:
        person.sees("Buy \ufffd[31mlamps.")
        assert person.waits() == 0
    with Person("read", url, "logo://small") as person:
        person.sees("--output")
        assert person.waits() == 2


def test_a_prompt_takes_its_arguments_and_asks(url: str) -> None:
    done = trio_mcp("prompt", url, "plan", "day=Monday", "--answer", "value=y")
    assert (done.returncode, done.stdout) == (0, "user: Plan Monday, short, accept.\n"), done.stderr
    done = trio_mcp("prompt", url, "plan", "day=Monday", "style=long", "--json", "--answer", "value=y")
    assert json.loads(done.stdout)["messages"][0]["content"]["text"] == "Plan Monday, long, accept."
    assert unnamed(refused(2, "prompt", url, "plane"), "'plane'", "plan") == []
    assert "'day'" in refused(2, "prompt", url, "plan", "day=1", "day=2")


def test_the_result_of_a_call_as_json(url: str) -> None:
    done = trio_mcp("call", url, "work", "--answer", "value=y", "--json")
    result = json.loads(done.stdout)
    assert (result["content"][0]["text"], result.get("isError", False)) == ("done: accept", False)


def test_a_call_shows_its_progress_as_a_bar_that_makes_room_for_questions(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ENVIRONMENT, "TERM", "xterm-256color")
    with Person("call", url, "work") as person:
        person.sees("first \ufffd[2Jstep")
        person.sees("33%")
        person.sees("offers asks: Go on?")
        person.sees("y or n: ")
        person.enters("y")
        person.sees("last step")
        person.sees("done: accept")
        assert person.waits() == 0
        assert "\x1b[2J" not in person.screen


def test_a_log_message_appears_above_the_bar(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "TERM", "xterm-256color")
    with Person("call", url, "work", "--answer", "value=y") as person:
        person.sees("[warning] look out")
        assert person.waits() == 0


def test_a_table_is_drawn_on_a_terminal_and_colours_are_not_sent_elsewhere(url: str) -> None:
    assert "\x1b" not in trio_mcp("inspect", url).stdout
    with Person("inspect", url) as person:
        person.sees("───")
        assert person.waits() == 0


def test_inspect_shows_every_offer_with_its_schema_its_problems_and_an_estimate(url: str) -> None:
    done = trio_mcp("inspect", url)
    assert done.returncode == 0, done.stderr
    assert unnamed(done.stdout, "offers 2.0", "Use it well.", "input schema", "note://{day}", "plan", "advice") == []
    assert "estimate: about" in done.stdout
    report = json.loads(trio_mcp("inspect", url, "--json").stdout)
    assert report["tools"][0]["estimatedTokens"] > 0
    assert report["estimatedTokens"] > report["tools"][0]["estimatedTokens"]
    assert {each["severity"] for each in report["findings"]} == {"advice"}


BROKEN = """
import json, sys
TOOL = {"name": "x\\x1b[2J", "description": "d", "inputSchema": {"type": "objekt"}}
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        info = {"name": "\\x1b[2J", "version": "1"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/list":
        result = {"tools": [TOOL]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


def test_inspect_has_status_1_for_an_error_and_shows_no_control_characters(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN)
    done = trio_mcp("inspect", f"{sys.executable} {file}", "--mode", "legacy")
    assert done.returncode == 1, done.stderr
    assert "error" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_inspect_says_that_a_server_has_no_version(tmp_path: Path) -> None:
    file = tmp_path / "plain.py"
    file.write_text("from trio_mcp import Server\n\nserver = Server('plain')\n")
    done = trio_mcp("inspect", str(file))
    assert done.stdout.startswith("plain without a version (protocol "), done.stderr


def test_doctor_connects_as_a_client_of_each_era_and_tries_another_host(url: str, tmp_path: Path) -> None:
    done = trio_mcp("doctor", url, "--json")
    found = {check["subject"]: check for check in json.loads(done.stdout)}
    assert {found[name]["state"] for name in ("modern", "legacy", "Host", "TLS")} == {"ok"}
    assert "2026-07-28" in found["modern"]["text"]
    file = tmp_path / "none.py"
    file.write_text("1 / 0\n")
    done = trio_mcp("doctor", str(file), "--json")
    assert done.returncode == 1
    assert "line 1" in next(check["text"] for check in json.loads(done.stdout) if check["state"] == "error")
    done = trio_mcp("doctor", "http://127.0.0.1:9/mcp", "--json")
    assert done.returncode == 1
    assert next(check["subject"] for check in json.loads(done.stdout) if check["state"] == "error") == "server"


GUARDED = """\
from trio_mcp import HttpOptions, Server

async def nobody(headers):
    return None

server = Server("guarded", http=HttpOptions(authenticate=nobody))
"""


def test_with_json_an_error_of_the_started_server_is_said_after_its_own_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise ValueError('no luck')\n")
    done = trio_mcp("list", str(file), "--json")
    assert done.returncode == 3
    own, last = done.stderr.splitlines()
    assert "no luck" in own
    assert json.loads(last)["error"]["kind"] == "unreachable"


def test_without_a_token_the_option_is_named_and_doctor_names_the_status_too(tmp_path: Path) -> None:
    file = tmp_path / "guarded.py"
    file.write_text(GUARDED)
    with started("serve", str(file), "--port", "0", "--drain", "1", "--log-format", "json") as process:
        assert process.stderr is not None
        said = next(record for record in map(json.loads, process.stderr) if "urls" in record)
        assert (said["level"], said["urls"]) == ("info", [said["message"].split()[-1]])
        done = trio_mcp("doctor", said["urls"][0], "--json")
        assert "--header authorization=" in refused(4, "list", said["urls"][0])
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
    found = {check["subject"]: check["text"] for check in json.loads(done.stdout)}
    for subject in ("modern", "legacy", "server"):
        assert "--header authorization=" in found[subject]
    assert "401" in found["server"]


def test_values_are_completed_for_a_prompt_and_for_a_template(url: str) -> None:
    done = trio_mcp("prompt", url, "plan", "style=long", "--complete", "day=Mo")
    assert (done.returncode, done.stdout) == (0, "Monday (long)\n"), done.stderr
    assert json.loads(trio_mcp("read", url, "note://{day}", "--complete", "day=Tue", "--json").stdout)["values"] == [
        "Tuesday"
    ]
    assert "'none'" in refused(2, "prompt", url, "none", "--complete", "day=M")


def test_run_passes_on_a_url_with_questions_and_progress(url: str, mode: str) -> None:
    target = shlex.join([*COMMAND, "run", url, "--header", "a=b"])
    done = trio_mcp("call", target, "work", "--mode", mode, "--answer", "value=y")
    assert (done.returncode, done.stdout) == (0, "done: accept\n"), done.stderr
    assert "last step" in done.stderr
    assert "[warning] look out" in done.stderr


def test_serve_passes_on_a_command(mode: str) -> None:
    with started("serve", running(OFFERS), "--port", "0", "--drain", "1") as process:
        done = trio_mcp("call", announced(process), "work", "--mode", mode, "--answer", "value=y")
        assert (done.returncode, done.stdout) == (0, "done: accept\n"), done.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0


def test_what_cannot_be_passed_on_is_one_line() -> None:
    assert "no_such_command" in refused(3, "run", "no_such_command")
    assert "x://127.0.0.1:9/mcp" in refused(2, "run", "x://127.0.0.1:9/mcp")


@pytest.mark.parametrize("command", ["run", "list", "doctor"])
def test_a_header_that_no_request_can_have_is_one_line(command: str) -> None:
    done = trio_mcp(command, "http://127.0.0.1:9/mcp", "--header", "a b=c")
    assert done.returncode in (1, 2)
    assert "'a b'" in done.stdout + done.stderr
    assert "bug" not in done.stdout + done.stderr


def test_certificates_that_cannot_be_read_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "SSL_CERT_FILE", "/no/such/file.pem")
    assert unnamed(refused(3, "list", "https://127.0.0.1:9/mcp"), "SSL_CERT_FILE", "/no/such/file.pem") == []


def test_a_reader_that_leaves_early_is_no_error(url: str) -> None:
    line = shlex.join([*COMMAND, "inspect", url, "--json"])
    done = subprocess.run(
        ["bash", "-c", f"{line} | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=ENVIRONMENT,
    )
    assert (done.stdout.strip(), done.stderr) in (("0", ""), ("141", ""))


@pytest.mark.parametrize(("answer", "status", "written"), [("y\n", 0, True), ("n\n", 0, False), ("\x03", 130, False)])
def test_a_person_sees_the_change_of_a_file_and_decides(
    tmp_path: Path, answer: str, status: int, written: bool
) -> None:
    file = tmp_path / "mcp.json"
    with Person("install", "mcp-json", OFFERS, "--file", str(file)) as person:
        person.sees('"offers": {')
        person.sees(f"Write {file}?")
        person.presses(answer)
        assert person.waits() == status
    assert file.exists() is written
