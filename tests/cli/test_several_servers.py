"""Commands that use every server of a file or of a host, and a result that is saved to a file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from naming import unnamed

from trio_mcp.cli.command import Status
from trio_mcp.cli.program import main

SERVER = """
from trio_mcp import Audio, File, Image, Server, ToolError
server = Server("shop")

@server.tool
async def pictures() -> list[str | Image | Audio | File]:
    return ["Two.", Image(data=b"\\x89PNG\\r\\n\\x1a\\n"), File(data=b"a;b", name="a.csv", mime_type="text/csv")]

@server.tool
async def words() -> str:
    return "none"

@server.tool
async def fails() -> str:
    raise ToolError("no")

server.run()
"""


@pytest.fixture
def app(tmp_path: Path) -> Path:
    file = tmp_path / "app.py"
    file.write_text(SERVER)
    return file


def host_file(path: Path, app: Path) -> str:
    good = {"command": sys.executable, "args": [str(app)]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": {"one": good, "two": {"command": "no-such-program"}, "three": good}}))
    return str(path)


def test_a_file_without_a_name_lists_every_server_and_goes_on_after_one_that_fails(
    app: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = host_file(tmp_path / "mcp.json", app)
    assert main(["list", file]) == Status.UNREACHABLE
    said = capfd.readouterr()
    assert [line for line in said.out.splitlines() if line.startswith(file)] == [f"{file}:one", f"{file}:three"]
    assert said.out.count("pictures") == 2
    assert unnamed(said.err, f"{file}:two", "no-such-program") == []
    assert main(["list", file, "--json"]) == Status.UNREACHABLE
    listed = json.loads(capfd.readouterr().out)
    assert {name: len(offers["tools"]) for name, offers in listed.items()} == {f"{file}:one": 3, f"{file}:three": 3}


def test_a_file_with_one_server_lists_it_as_ever(app: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"one": {"command": sys.executable, "args": [str(app)]}}}))
    assert main(["list", str(file), "--json"]) == Status.OK
    assert len(json.loads(capfd.readouterr().out)["tools"]) == 3


def test_the_doctor_connects_to_the_servers_of_all_hosts(
    app: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    host_file(tmp_path / ".cursor" / "mcp.json", app)
    assert main(["doctor", "--json"]) == Status.TOOL_ERROR
    assert not any("cursor:one" in check["subject"] for check in json.loads(capfd.readouterr().out))
    assert main(["doctor", "--connect", "--json"]) == Status.TOOL_ERROR
    states = {check["subject"]: check["state"] for check in json.loads(capfd.readouterr().out)}
    assert (states["cursor:one, modern"], states["cursor:one, legacy"]) == ("ok", "ok")
    assert states["cursor:two, server"] == "error"


def test_images_and_files_of_a_result_are_saved(app: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "chart.png"
    assert main(["call", str(app), "pictures", "--save", str(file)]) == Status.OK
    assert file.read_bytes() == b"\x89PNG\r\n\x1a\n"
    assert (tmp_path / "chart-2.png").read_bytes() == b"a;b"
    assert unnamed(capfd.readouterr().err, f"saved {file}", "chart-2.png") == []


def test_a_result_without_a_file_saves_nothing_and_is_reported(
    app: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "chart.png"
    assert main(["call", str(app), "words", "--save", str(file)]) == Status.USAGE
    assert unnamed(capfd.readouterr().err, "--save", "no image") == []
    assert main(["call", str(app), "fails", "--save", str(file)]) == Status.TOOL_ERROR
    assert main(["call", str(app), "pictures", "--save", str(tmp_path / "no" / "a.png")]) == Status.USAGE
    assert not file.exists()


@pytest.mark.parametrize("before", [[], ["/a={app}"]])
@pytest.mark.parametrize("target", ["https://mcp.example.com/mcp", "npx some-server"])
def test_what_would_be_passed_on_is_not_served_without_sessions(
    before: list[str], target: str, app: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    targets = [*(each.format(app=app) for each in before), f"/b={target}" if before else target]
    assert main(["serve", *targets, "--no-sessions"]) == 2
    error = capsys.readouterr().err
    assert unnamed(error, "--no-sessions", "proxy", "mount") == []
    assert error.count("\n") == 1


def test_a_file_with_a_proxy_is_not_served_without_sessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "passing.py"
    script.write_text("from trio_mcp import proxy\nserver = proxy(['python', 'x.py'])\n")
    for targets in ([str(script)], [f"/a={script}"]):
        assert main(["serve", *targets, "--no-sessions"]) == 2
        error = capsys.readouterr().err
        assert unnamed(error, "--no-sessions", "proxy", "mount") == []
        assert error.count("\n") == 1
