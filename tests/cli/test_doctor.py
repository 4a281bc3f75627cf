"""What `trio-mcp doctor` finds on this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from naming import unnamed

from trio_mcp.cli.command import Status
from trio_mcp.cli.diagnosis import Check, machine_checks
from trio_mcp.cli.program import main

VARIABLES = ("TRIO_MCP_KEYS", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing is set."""
    for name in (*VARIABLES, *PROXIES, *map(str.lower, PROXIES)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checks(subject: str) -> list[Check]:
    return [check for check in machine_checks() if check.subject == subject]


def test_nothing_is_wrong_with_a_fresh_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == Status.OK
    assert {check["state"] for check in json.loads(capsys.readouterr().out)} == {"ok", "note"}


def test_versions_and_revisions_are_shown() -> None:
    text = " ".join(check.text for check in [*checks("versions"), *checks("revisions")])
    assert unnamed(text, "trio-mcp", "trio", "pydantic", "hypercorn", "2026-07-28", "2024-11-05") == []


@pytest.mark.parametrize(
    ("value", "state"),
    [(None, "note"), ("k" * 43, "ok"), ("short", "error"), ("/no/such/file", "error")],
)
def test_keys_are_checked_and_never_shown(value: str | None, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is not None:
        monkeypatch.setenv("TRIO_MCP_KEYS", value)
    (check,) = checks("keys")
    assert check.state == state
    assert value is None or value not in check.text


@pytest.mark.parametrize(("exempt", "states"), [(None, ["note", "warning"]), ("x, 127.0.0.1", ["note"])])
def test_a_proxy_is_a_warning_where_requests_to_this_machine_would_go_to_it(
    exempt: str | None, states: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://me:hidden@proxy.example:3128")
    if exempt is not None:
        monkeypatch.setenv("NO_PROXY", exempt)
    found = checks("proxies")
    assert [check.state for check in found] == states
    assert "hidden" not in str(found)


def test_certificates_that_cannot_be_read_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/no/such/file")
    (check,) = checks("certificates")
    assert (check.state, "/no/such/file" in check.text) == ("error", True)


def test_the_servers_of_hosts_are_looked_at(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    servers = {
        "fine": {"command": sys.executable, "args": ["x"]},
        "gone": {"command": "/no/such/python"},
        "moved": {"command": sys.executable, "args": ["-m", "trio_mcp", "run", "/no/such/file.py"]},
        "unset": {"command": sys.executable, "env": {"A": "${NOT_SET_ANYWHERE}"}},
        "off": {"command": "/no/such/python", "disabled": True},
        "web": {"url": "https://x.example/mcp"},
    }
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    found = checks("cursor")
    # The file is the one for all folders, and the one for the current folder.
    assert {check.state for check in found} == {"ok", "error", "warning"}
    said = " ".join(check.text for check in found)
    assert (
        unnamed(said, "'gone'", "/no/such/python", "'moved'", "/no/such/file.py", "'unset'", "NOT_SET_ANYWHERE") == []
    )
    assert not [name for name in ("'fine'", "'off'", "'web'") if name in said]
    assert main(["doctor"]) == Status.TOOL_ERROR


def test_a_file_of_a_host_that_cannot_be_parsed_is_an_error(home: Path) -> None:
    (home / ".claude.json").write_text("{")
    (check,) = checks("claude-code")
    assert (check.state, str(home / ".claude.json") in check.text) == ("error", True)


@pytest.mark.usefixtures("loads_files")
def test_with_a_target_the_status_is_about_the_target(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".claude.json").write_text("{")
    assert main(["doctor", "--json"]) == Status.TOOL_ERROR
    capsys.readouterr()
    (home / "app.py").write_text("from trio_mcp import Server\nserver = Server('app')\n")
    assert main(["doctor", "app.py", "--json"]) == Status.OK
    found = {check["subject"]: check["state"] for check in json.loads(capsys.readouterr().out)}
    assert (found["claude-code"], found["modern"], found["legacy"]) == ("warning", "ok", "ok")
    (home / "app.py").write_text("1 / 0")
    assert main(["doctor", "app.py", "--json"]) == Status.TOOL_ERROR


@pytest.mark.parametrize("options", [[], ["--connect"]])
def test_servers_of_a_file_are_checked_by_name(
    options: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "app.py").write_text("from trio_mcp import Server\nserver = Server('shop')\n")
    works = {"command": sys.executable, "args": ["-m", "trio_mcp", "run", str(home / "app.py")]}
    lacks = {"command": "/no/such/program"}
    servers = {"works": works, "lacks": lacks, "unset": {"command": "${NOT_SET_ANYWHERE}"}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert main(["doctor", "mcp.json", *options, "--json"]) == Status.TOOL_ERROR
    found = [(each["subject"], each["state"]) for each in json.loads(capsys.readouterr().out)]
    assert ("mcp.json:works, modern", "ok") in found
    assert ("mcp.json:lacks, server", "error") in found
    assert ("mcp.json:unset, file", "error") in found
