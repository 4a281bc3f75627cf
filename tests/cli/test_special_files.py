"""No command waits for a FIFO, reads a device, or puts a file in its place: whatever a path names, it is a regular file."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from types import FrameType

import pytest

from trio_mcp.base.regular_files import (
    MAX_CONFIGURATION,
    NotRegularFile,
    open_regular,
    read_regular,
    replacing,
    write_regular,
)
from trio_mcp.cli.command import CommandError, Status
from trio_mcp.cli.commands.read import save
from trio_mcp.cli.hosts import HOSTS
from trio_mcp.cli.program import MODULES, main
from trio_mcp.types import ReadResourceResult, TextResourceContents

BOUND = 10

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the special files are those of POSIX")

FIFO, SOCKET, DEVICE, LINK = "fifo", "socket", "device", "link to a device"
KINDS = (FIFO, SOCKET, DEVICE, LINK)

SERVER = "from trio_mcp import Server\nserver = Server('shop', version='1', instructions='Sells.')\n"


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A call of the system that waits is interrupted, and the test fails."""

    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("the command hangs")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(BOUND)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads_files: None) -> Path:
    """The current folder, with the file of a server; the home is another one."""
    for name in (
        "XDG_CONFIG_HOME",
        "CLAUDE_CONFIG_DIR",
        "TRIO_MCP_KEYS",
        "SSL_CERT_FILE",
        "TRIO_MCP_AUTH_DIR",
        "XDG_STATE_HOME",
    ):
        monkeypatch.delenv(name, raising=False)
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.chdir(work)
    (work / "app.py").write_text(SERVER)
    return work


def make_special(path: Path, kind: str) -> Callable[[], bool]:
    """Make a special file, and return whether it is still there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == FIFO:
        os.mkfifo(path)
    elif kind == SOCKET:
        with socket.socket(socket.AF_UNIX) as made:
            # The path of a socket has a hundred characters at most.
            folder = os.open(path.parent, os.O_RDONLY)
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
            os.close(folder)
    elif kind == LINK:
        path.symlink_to("/dev/zero")
    else:
        try:
            os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("only root makes devices")
    before = path.lstat()
    return lambda: (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)


PROTECTED = "https://mcp.example.com/mcp"
LOGIN = f"../home/.local/state/trio-mcp/auth/{sha256(PROTECTED.encode()).hexdigest()[:32]}.json"

INPUTS: dict[str, list[tuple[str, list[str]]]] = {
    **{name: [("fifo.py", ["fifo.py"])] for name in ("run", "serve", "dev", "list", "inspect", "bundle", "doctor")},
    **{name: [("fifo.py", ["fifo.py", "x"])] for name in ("call", "read", "prompt")},
    "tasks": [("fifo.py", ["list", "fifo.py"])],
    "backfill": [("mcp.json", ["--provider", "openai", "--", "mcp.json:shop"])],
    "store": [("x.db", [action, "x.db"]) for action in ("list", "check", "vacuum")],
    "install": [
        ("x.json", ["mcp-json", "app.py", "--yes", "--file", "x.json"]),
        ("x.yaml", ["goose", "app.py", "--yes", "--file", "x.yaml"]),
        (".vscode/mcp.json", ["vscode", "app.py", "--yes", "--project"]),
        ("../home/.cursor/mcp.json", ["cursor", "app.py", "--yes"]),
        ("fifo.py", ["cursor", "fifo.py", "--yes"]),
    ],
    "uninstall": [
        ("x.json", ["mcp-json", "shop", "--yes", "--file", "x.json"]),
        ("../home/.claude.json", ["claude-code", "shop", "--yes"]),
    ],
    "publish": [("fifo.py", ["--server-json", "fifo.py"])],
    "login": [("x.txt", [PROTECTED, "--client-id", "c", "--client-secret-file", "x.txt"])],
    **{name: [(LOGIN, [PROTECTED])] for name in ("logout", "whoami")},
}
MORE_INPUTS = {
    "serve": [
        ("x.pem", ["app.py", "--certfile", "x.pem"]),
        ("x.pem", ["app.py", "--certfile", "app.py", "--keyfile", "x.pem"]),
    ],
    "list": [("mcp.json", ["mcp.json:shop"]), ("../home/.cursor/mcp.json", ["cursor:shop"])],
    "bundle": [(".mcpbignore", ["app.py", "--author", "Ada"])],
}
OUTPUTS: dict[str, list[tuple[str, list[str]]]] = {
    "bundle": [("x.mcpb", ["app.py", "--author", "Ada", "--output", "x.mcpb"])],
    "publish": [
        ("x.json", ["--server-json", "--no-package", "--remote", "https://x.example/mcp", *words, "--output", "x.json"])
        for words in [["--name", "com.example/shop", "--description", "Sells.", "--version", "1"]]
    ],
}
WITHOUT = {"completion", "demo", "discover"}
"""Commands that take no path; `discover` has a separate test."""


def cases(*tables: Mapping[str, list[tuple[str, list[str]]]]) -> list[tuple[str, str, list[str]]]:
    return [(command, path, words) for table in tables for command, each in table.items() for path, words in each]


def test_every_command_that_takes_a_path_is_tried() -> None:
    assert {*INPUTS, *OUTPUTS} | WITHOUT == {*MODULES}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("command", "path", "words"), cases(INPUTS, MORE_INPUTS, OUTPUTS))
def test_a_command_takes_regular_files_alone(
    command: str, path: str, words: list[str], kind: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    is_there = make_special(folder / path, kind)
    assert main([command, *words]) in (Status.USAGE, Status.UNREACHABLE, Status.TOOL_ERROR)
    assert is_there()
    assert Path(path).name in capfd.readouterr().err
    assert {each.name for each in folder.iterdir()} <= {"app.py", "__pycache__", Path(path).parts[0]}


@pytest.mark.parametrize("kind", KINDS)
def test_discover_names_special_files_and_goes_on(kind: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_special(Path.home() / ".cursor" / "mcp.json", kind)
    (folder / "mcp.json").write_text('{"mcpServers": {"shop": {"command": "x"}}}')
    assert main(["discover"]) == Status.OK
    said = capsys.readouterr()
    assert "shop" in said.out
    assert str(Path.home() / ".cursor" / "mcp.json") in said.err


@pytest.mark.parametrize("kind", KINDS)
def test_a_resource_is_saved_in_a_regular_file_alone(kind: str, folder: Path) -> None:
    is_there = make_special(folder / "x", kind)
    result = ReadResourceResult(contents=[TextResourceContents(uri="x://x", text="x")])
    with pytest.raises(CommandError, match="regular"):
        save(result, "x")
    assert is_there()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "TRIO_MCP_KEYS"])
def test_a_variable_names_a_regular_file_alone(
    variable: str, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_special(folder / "x", kind)
    monkeypatch.setenv(variable, "x")
    words = ["list", "https://127.0.0.1:9/mcp"] if variable == "SSL_CERT_FILE" else ["doctor"]
    assert main(words) != Status.OK
    said = capsys.readouterr()
    assert variable in said.out + said.err


# links


def test_a_link_of_a_project_that_leads_out_of_it_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outside = folder.parent / "outside.json"
    outside.write_text('{"servers": {"secret": {"command": "x"}}}')
    (folder / ".vscode").mkdir()
    link = folder / ".vscode" / "mcp.json"
    link.symlink_to("../../outside.json")
    before = outside.read_text()
    for words in (["install", "vscode", "app.py"], ["uninstall", "vscode", "secret"]):
        assert main([*words, "--project", "--yes"]) == Status.UNREACHABLE
        said = capsys.readouterr().err
        assert str(link) in said
        assert str(outside) in said
    assert main(["discover", "--host", "vscode"]) == Status.OK
    assert "secret" not in capsys.readouterr().out
    assert main(["list", "vscode:secret"]) == Status.UNREACHABLE
    assert f"{outside}:NAME" in capsys.readouterr().err
    assert outside.read_text() == before


@pytest.mark.parametrize(("command", "path", "words"), cases(OUTPUTS))
def test_a_link_with_the_name_of_an_output_is_replaced(command: str, path: str, words: list[str], folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.write_text("mine")
    (folder / path).symlink_to(outside)
    assert main([command, *words]) == Status.OK
    assert outside.read_text() == "mine"
    assert (folder / path).read_bytes()
    assert not (folder / path).is_symlink()


@pytest.mark.parametrize("target", ["../outside", "../missing"])
def test_a_folder_of_a_project_that_is_a_link_out_of_it_is_refused(target: str, folder: Path) -> None:
    (folder.parent / "outside").mkdir()
    (folder / ".vscode").symlink_to(target)
    assert main(["install", "vscode", "app.py", "--project", "--yes"]) == Status.UNREACHABLE
    assert [*(folder.parent / "outside").iterdir()] == []
    assert not (folder.parent / "missing").exists()


def test_a_link_within_a_project_is_written_through(folder: Path) -> None:
    (folder / "config").mkdir()
    (folder / ".vscode").symlink_to("config")
    assert main(["install", "vscode", "app.py", "--project", "--yes"]) == Status.OK
    assert "shop" in json.loads((folder / "config" / "mcp.json").read_text())["servers"]


def test_the_file_of_a_user_is_written_through_a_link_and_shown_by_its_own_path(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dotfiles = folder.parent / "dotfiles.json"
    (Path.home() / ".cursor").mkdir()
    link = Path.home() / ".cursor" / "mcp.json"
    link.symlink_to(dotfiles)
    assert main(["install", "cursor", "app.py", "--yes"]) == Status.OK
    assert f"wrote {dotfiles}" in capsys.readouterr().err
    assert link.is_symlink()
    assert "shop" in dotfiles.read_text()


def test_the_file_of_a_user_may_be_a_link_in_the_home_as_the_current_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (Path.home() / ".cursor").mkdir()
    (Path.home() / ".cursor" / "mcp.json").symlink_to(folder.parent / "dotfiles.json")
    monkeypatch.chdir(Path.home())
    assert main(["install", "cursor", str(folder / "app.py"), "--yes"]) == Status.OK
    assert "shop" in (folder.parent / "dotfiles.json").read_text()


def test_a_link_decides_by_its_own_name_that_a_file_is_yaml(folder: Path) -> None:
    dotfile = folder.parent / "goose"
    dotfile.write_text("# mine\nextensions: {}\n")
    (Path.home() / ".config" / "goose").mkdir(parents=True)
    (Path.home() / ".config" / "goose" / "config.yaml").symlink_to(dotfile)
    assert main(["install", "goose", "app.py", "--yes"]) == Status.OK
    assert dotfile.read_text().startswith("# mine\nextensions:")
    assert "shop" in dotfile.read_text()


def test_links_in_a_circle_are_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "a.json").symlink_to("b.json")
    (folder / "b.json").symlink_to("a.json")
    assert main(["install", "mcp-json", "app.py", "--yes", "--file", "a.json"]) == Status.UNREACHABLE
    assert "a.json" in capsys.readouterr().err


# sizes


@pytest.mark.parametrize("host", HOSTS)
def test_the_file_of_a_host_has_a_limit(host: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "x.yaml" if host == "goose" else "x.json"
    with (folder / name).open("wb") as file:
        file.truncate(MAX_CONFIGURATION + 1)
    assert main(["install", host, "app.py", "--yes", "--file", name]) == Status.UNREACHABLE
    assert str(MAX_CONFIGURATION) in capsys.readouterr().err


# the floor of all this


def test_what_is_written_is_as_long_as_what_was_given(tmp_path: Path) -> None:
    file = tmp_path / "x"
    for content in (b"long", b"x", b""):
        write_regular(file, content)
        assert read_regular(file, 4) == content


def test_a_file_that_becomes_a_fifo_before_opening_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "x")
    monkeypatch.setattr("trio_mcp.base.regular_files.check_kind", lambda path: None)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NotRegularFile):
        open_regular(tmp_path / "x", os.O_RDONLY)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"old")
    file.chmod(0o640)
    with suppress(ZeroDivisionError), replacing(file) as new:
        new.write(b"half")
        raise ZeroDivisionError
    assert (file.read_bytes(), [*tmp_path.iterdir()]) == (b"old", [file])
    with replacing(file) as new:
        new.write(b"new")
        assert file.read_bytes() == b"old"
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode), [*tmp_path.iterdir()]) == (b"new", 0o640, [file])


def test_a_file_can_be_replaced_while_one_of_the_same_process_id_is_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container each process has the ID 1, and one that is killed leaves what it has written."""
    monkeypatch.setattr("os.getpid", lambda: 1)
    file = tmp_path / "x"
    with suppress(ZeroDivisionError), replacing(file) as left:
        left.write(b"left")
        with replacing(file) as new:
            new.write(b"new")
        raise ZeroDivisionError
    assert (file.read_bytes(), [*tmp_path.iterdir()]) == (b"new", [file])
