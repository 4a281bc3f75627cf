"""`trio-mcp install`, `uninstall` and `discover`: what they write into the files of hosts, and what they leave alone."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from naming import unnamed
from ruamel.yaml import YAML

from trio_mcp.cli.command import Status
from trio_mcp.cli.hosts import HOSTS
from trio_mcp.cli.program import main

LINUX = {
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".config/Code/User/mcp.json",
    "gemini-cli": ".gemini/settings.json",
    "goose": ".config/goose/config.yaml",
    "mcp-json": "work/mcp.json",
}
PLACES = {
    "linux": LINUX,
    "darwin": {
        **LINUX,
        "claude-desktop": "Library/Application Support/Claude/claude_desktop_config.json",
        "vscode": "Library/Application Support/Code/User/mcp.json",
    },
    "win32": {
        **LINUX,
        "claude-desktop": "AppData/Roaming/Claude/claude_desktop_config.json",
        "vscode": "AppData/Roaming/Code/User/mcp.json",
        "goose": "AppData/Roaming/Block/goose/config/config.yaml",
    },
}
PROJECT = {"claude-code": ".mcp.json", "cursor": ".cursor/mcp.json", "vscode": ".vscode/mcp.json"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads_files: None) -> Path:
    """A home without files of hosts, and a current folder in it with the file of a server."""
    for name in ("XDG_CONFIG_HOME", "APPDATA", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("app.py").write_text("from trio_mcp import Server\nserver = Server('my shop')\n")
    return tmp_path


def read(path: Path) -> Any:
    text = path.read_text()
    return YAML(typ="safe").load(text) if path.suffix == ".yaml" else json.loads(text)


def installed(host: str, path: Path) -> Any:
    return read(path)[HOSTS[host].members[0]]


def install(*words: str) -> int:
    return main(["install", *words, "--yes"])


@pytest.mark.parametrize("system", PLACES)
@pytest.mark.parametrize("host", HOSTS)
def test_each_host_has_a_file_on_each_system(
    host: str, system: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert HOSTS[host].file() == home / PLACES[system][host]


COMMAND = [sys.executable, "-m", "trio_mcp", "run"]


def command_of(home: Path) -> dict[str, Any]:
    return {"command": COMMAND[0], "args": [*COMMAND[1:], str(home / "work" / "app.py")], "env": {"KEY": "x"}}


@pytest.mark.parametrize("host", HOSTS)
def test_a_file_is_installed_as_the_host_writes_a_command(host: str, home: Path) -> None:
    assert install(host, "app.py", "--env", "KEY=x") == Status.OK
    found = installed(host, home / LINUX[host])["my-shop"]
    expected = command_of(home)
    if host in ("claude-code", "vscode"):
        expected = {"type": "stdio", **expected}
    if host == "goose":
        assert {found[name] for name in ("name", "type", "cmd")} == {"my-shop", "stdio", COMMAND[0]}
        assert (found["args"], found["envs"], found["enabled"]) == (expected["args"], {"KEY": "x"}, True)
    else:
        assert found == expected


URLS: dict[str, dict[str, Any]] = {
    "claude-code": {"type": "http", "url": "https://x.example/mcp", "headers": {"a": "b"}},
    # Not in the arguments, which every user of the machine can list.
    "claude-desktop": {
        "command": COMMAND[0],
        "args": [*COMMAND[1:], "https://x.example/mcp"],
        "env": {"TRIO_MCP_RUN_HEADER": "a=b"},
    },
    "cursor": {"url": "https://x.example/mcp", "headers": {"a": "b"}},
    "vscode": {"type": "http", "url": "https://x.example/mcp", "headers": {"a": "b"}},
    "gemini-cli": {"httpUrl": "https://x.example/mcp", "headers": {"a": "b"}},
    "mcp-json": {"url": "https://x.example/mcp", "headers": {"a": "b"}},
}


@pytest.mark.parametrize("host", HOSTS)
def test_a_url_is_installed_as_the_host_writes_one(host: str, home: Path) -> None:
    assert install(host, "https://x.example/mcp", "--name", "web", "--header", "a=b") == Status.OK
    found = installed(host, home / LINUX[host])["web"]
    if host == "goose":
        assert (found["type"], found["uri"], found["headers"]) == (
            "streamable_http",
            "https://x.example/mcp",
            {"a": "b"},
        )
    else:
        assert found == URLS[host]


@pytest.mark.parametrize("host", PROJECT)
def test_a_server_is_installed_for_the_current_folder(host: str, home: Path) -> None:
    assert install(host, "app.py", "--project") == Status.OK
    assert "my-shop" in installed(host, home / "work" / PROJECT[host])


@pytest.mark.parametrize(("words", "asks"), [([], False), (["--project"], True), (["--file", "other.json"], False)])
def test_only_a_file_of_a_project_is_approved(
    words: list[str], asks: bool, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install("claude-code", "app.py", *words) == Status.OK
    assert ("approve" in capsys.readouterr().err) is asks


@pytest.mark.parametrize("command", [["install", "claude-code", "app.py"], ["uninstall", "claude-code", "my-shop"]])
def test_a_change_of_two_files_is_refused(command: list[str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--project", "--file", "x.json", "--yes"]) == Status.USAGE
    assert unnamed(capsys.readouterr().err, "--project", "--file") == []
    assert not Path("x.json").exists()


def test_a_module_of_the_current_folder_is_found_from_any_other(home: Path) -> None:
    assert install("cursor", "app:server") == Status.OK
    found = installed("cursor", home / ".cursor/mcp.json")["my-shop"]
    assert found["args"] == [*COMMAND[1:], "app:server"]
    assert found["env"] == {"PYTHONPATH": str(home / "work")}


def test_a_server_goes_from_one_host_to_another_by_its_name(home: Path) -> None:
    assert install("cursor", "app.py") == Status.OK
    assert install("vscode", "cursor:my-shop") == Status.OK
    found = installed("vscode", home / LINUX["vscode"])["my-shop"]
    assert found["args"][-1] == str(home / "work" / "app.py")


OLD = """{
    "theme": "dark",
    "größe": 1.5,
    "mcpServers": {
        "other": {"command": "x"}
    },
    "last": [1, 2]
}"""


def test_all_else_in_a_file_stays_and_the_old_file_is_kept(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text(OLD)
    file.chmod(0o600)
    assert install("cursor", "app.py") == Status.OK
    new = file.read_text()
    assert {**json.loads(new), "mcpServers": None} == {**json.loads(OLD), "mcpServers": None}
    assert list(json.loads(new)) == list(json.loads(OLD))
    assert set(json.loads(new)["mcpServers"]) == {"other", "my-shop"}
    assert '\n    "größe": 1.5,' in new
    assert not new.endswith("\n")
    (backup,) = file.parent.glob("*.bak")
    assert backup.read_text() == OLD
    assert {stat.S_IMODE(each.stat().st_mode) for each in (file, backup)} == {0o600}
    assert sorted(path.name for path in file.parent.iterdir()) == sorted([file.name, backup.name])
    said = capsys.readouterr()
    assert '+        "my-shop": {' in said.out
    assert str(backup) in said.err


def test_the_comments_of_a_yaml_file_stay(home: Path) -> None:
    file = home / ".config" / "goose" / "config.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("# mine\nGOOSE_MODEL: 'x'  # a model\nextensions:\n  developer:\n    type: builtin # built in\n")
    assert install("goose", "app.py") == Status.OK
    text = file.read_text()
    assert text.startswith("# mine\nGOOSE_MODEL: 'x'  # a model\n")
    assert "type: builtin # built in" in text
    assert main(["uninstall", "goose", "my-shop", "--yes"]) == Status.OK
    assert "my-shop" not in file.read_text()


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("cursor", '{"mcpServers": {} // mine\n}'),
        ("cursor", '{"mcpServers": {},}'),
        ("cursor", '{"a": 1, "a": 2}'),
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": []}'),
        ("cursor", "[" * 100_000),
        ("cursor", b"\xff\xfe{}"),
        ("cursor", f'{{"numStartups": {"1" * 5000}}}'),
        ("goose", "extensions: [unclosed"),
        ("goose", "extensions:\n  a: 1\n  a: 2\n"),
        ("goose", "- a list"),
        ("goose", f"extensions: {'[' * 600}"),
        ("goose", f"extensions: {{}}\ntimeout: {'9' * 5000}"),
    ],
)
@pytest.mark.parametrize("words", [["install", "HOST", "app.py"], ["uninstall", "HOST", "other"]])
def test_a_file_that_cannot_be_parsed_is_left_as_it_is(
    host: str, text: str | bytes, words: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / LINUX[host]
    file.parent.mkdir(parents=True, exist_ok=True)
    data = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(data)
    assert main([host if word == "HOST" else word for word in words] + ["--yes"]) == Status.UNREACHABLE
    assert file.read_bytes() == data
    assert [*file.parent.iterdir()] == [file]
    (line,) = capsys.readouterr().err.splitlines()
    assert str(file) in line


@pytest.mark.parametrize("text", ["extensions: {}\n", None])
def test_yaml_needs_an_extra_that_the_error_names(
    text: str | None, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / ".config" / "goose" / "config.yaml"
    if text is not None:
        file.parent.mkdir(parents=True)
        file.write_text(text)
    monkeypatch.delitem(sys.modules, "trio_mcp.cli.hosts.yaml_files", raising=False)
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    assert install("goose", "app.py") == Status.UNREACHABLE
    assert "'trio-mcp[goose]'" in capsys.readouterr().err
    assert (file.read_text() if file.exists() else None) == text


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--dry-run"], Status.OK, ["my-shop"]),
        (["--json"], Status.USAGE, ["--yes", "--dry-run"]),
        ([], Status.USAGE, ["--yes"]),
    ],
    ids=["a dry run shows the change", "JSON is no way round the question", "there is no terminal"],
)
def test_nothing_is_written_without_a_yes(
    words: list[str], status: Status, said: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "cursor", "app.py", *words]) == status
    assert unnamed("".join(capsys.readouterr()), *said) == []
    assert not (home / ".cursor").exists()


def test_a_server_of_the_same_name_is_replaced_only_with_force(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install("cursor", "app.py") == Status.OK
    file = home / ".cursor" / "mcp.json"
    before = file.read_bytes()
    assert install("cursor", "app.py") == Status.OK
    assert install("cursor", "app.py", "--env", "A=b") == Status.USAGE
    assert unnamed(capsys.readouterr().err, "'my-shop'", "--force", "--name") == []
    assert file.read_bytes() == before
    assert install("cursor", "app.py", "--env", "A=b", "--force") == Status.OK
    assert installed("cursor", file)["my-shop"]["env"] == {"A": "b"}


@pytest.mark.parametrize(
    ("words", "status", "names"),
    [
        (["cursor", "none.py"], Status.UNREACHABLE, ["none.py"]),
        (["cursor", "https://x.example/mcp"], Status.USAGE, ["--name"]),
        (["cursor", "app.py", "--name", "a b"], Status.USAGE, ["'a b'"]),
        (["cursor", "app.py", "--header", "a=b"], Status.USAGE, ["--header"]),
        (["cursor", "https://x.example/mcp", "--name", "x", "--env", "a=b"], Status.USAGE, ["--env"]),
        (["goose", "app.py", "--project"], Status.USAGE, ["--project"]),
    ],
)
def test_what_cannot_be_installed_is_refused(
    words: list[str], status: Status, names: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert install(*words) == status
    assert unnamed(capsys.readouterr().err, *names) == []
    assert sorted(path.name for path in home.iterdir()) == ["work"]


def test_a_file_that_another_program_changes_meanwhile_is_left_to_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / "mcp.json"
    file.write_text("{}")

    def change_and_agree(*_words: object, **_options: object) -> bool:
        file.write_text('{"new": 1}')
        return True

    monkeypatch.setattr("trio_mcp.cli.commands.install.confirmed", change_and_agree)
    assert main(["install", "mcp-json", "app.py", "--file", str(file)]) == Status.UNREACHABLE
    assert file.read_text() == '{"new": 1}'
    assert "changed" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are those of POSIX")
def test_no_copy_of_a_private_file_is_readable_by_others_ever(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = home / "private" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"a": {"url": "https://x.example", "headers": {"authorization": "secret"}}}}')
    file.chmod(0o600)
    # As it is before the permissions are copied.
    monkeypatch.setattr("shutil.copymode", lambda *_paths, **_options: None)
    monkeypatch.setattr("shutil.copystat", lambda *_paths, **_options: None)
    assert install("mcp-json", "app.py", "--file", str(file)) == Status.OK
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
    assert len(modes) == 2
    assert {*modes.values()} == {0o600}


def test_a_file_that_cannot_be_there_is_one_error(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".cursor").write_text("a file where a folder should be")
    assert install("cursor", "app.py") == Status.UNREACHABLE
    (line,) = capsys.readouterr().err.splitlines()
    assert str(home / ".cursor" / "mcp.json") in line


def test_uninstall_removes_one_server_or_names_the_nearest(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install("cursor", "app.py") == Status.OK
    assert main(["uninstall", "cursor", "my-shpo", "--yes"]) == Status.USAGE
    assert "'my-shop'" in capsys.readouterr().err
    assert main(["uninstall", "cursor", "my-shop", "--yes", "--json"]) == Status.OK
    assert json.loads(capsys.readouterr().out)["written"] is True
    assert read(home / ".cursor" / "mcp.json") == {"mcpServers": {}}


def test_discover_lists_the_servers_of_all_hosts_without_secrets(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host in HOSTS:
        install(host, "https://me:hidden@x.example/mcp?key=hidden", "--name", f"web-{host}", "--header", "a=hidden-b")
    local = {"projects": {str(home / "work"): {"mcpServers": {"here": {"command": "x", "env": {"K": "hidden"}}}}}}
    (home / ".claude.json").write_text(json.dumps(local))
    (home / ".config" / "goose" / "config.yaml").write_text("extensions:\n  off: {cmd: y, enabled: false}\n  dev: {}\n")
    capsys.readouterr()
    assert main(["discover", "--json"]) == Status.OK
    said = capsys.readouterr().out
    found = json.loads(said)
    names = [
        ("claude-code", "here"),
        *((host, f"web-{host}") for host in HOSTS if host not in ("claude-code", "goose")),
    ]
    assert sorted((each["host"], each["name"]) for each in found) == sorted([*names, ("goose", "off")])
    assert next(each for each in found if each["name"] == "off")["enabled"] is False
    # Of Claude Desktop it is a command, with the URL in its words and the header in its environment.
    assert "hidden" not in said
    (desktop,) = (each["server"] for each in found if each["host"] == "claude-desktop")
    assert unnamed(desktop, "x.example/mcp") == []
    assert main(["discover", "--host", "cursor"]) == Status.OK
    head, row = capsys.readouterr().out.splitlines()
    assert (head.split("\t"), row.split("\t")[:3]) == (
        ["host", "scope", "name", "server"],
        ["cursor", "user", "web-cursor"],
    )


COMMENTED = """{
    // the servers of this project
    "servers": {
        "shop": {"type": "stdio", "command": "python", "args": ["s.py"],}, /* and no more */
    },
}
"""


WITH_COMMENT = '{"mcpServers": {} // mine\n}'
WITH_COMMA = '{"mcpServers": {},}'
READS = {
    "claude-code": (),
    "claude-desktop": (),
    "cursor": (),
    "gemini-cli": (WITH_COMMENT,),
    "vscode": (WITH_COMMENT, WITH_COMMA),
    "mcp-json": (WITH_COMMENT, WITH_COMMA),
}
"""Of a host that reads comments, or trailing commas, a file with them."""


def test_comments_stay_in_the_file_of_a_host_that_reads_them(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = home / "work" / ".vscode" / "mcp.json"
    file.parent.mkdir()
    file.write_text(COMMENTED)
    assert main(["discover", "--json"]) == Status.OK
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["shop"]
    assert install("vscode", "app.py", "--project") == Status.OK
    assert '"my-shop"' in file.read_text()
    assert main(["uninstall", "vscode", "my-shop", "--project", "--yes"]) == Status.OK
    assert file.read_text() == COMMENTED
    assert main(["uninstall", "vscode", "shop", "--project", "--yes"]) == Status.OK
    for comment in ("// the servers of this project", "/* and no more */"):
        assert comment in file.read_text()


@pytest.mark.parametrize("text", [WITH_COMMENT, WITH_COMMA])
@pytest.mark.parametrize("host", READS)
def test_a_file_is_not_changed_that_its_host_does_not_read(
    host: str, text: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = home / LINUX[host]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if text in READS[host]:
        assert install(host, "app.py") == Status.OK
        return
    assert install(host, "app.py") == Status.UNREACHABLE
    assert file.read_text() == text
    found = "a comment" if text == WITH_COMMENT else "a trailing comma"
    assert unnamed(capsys.readouterr().err, str(file), HOSTS[host].title, found, "line 1") == []


def test_discover_names_a_file_that_it_cannot_read_and_goes_on(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".claude.json").write_text("{")
    install("cursor", "app.py")
    capsys.readouterr()
    assert main(["discover"]) == Status.OK
    said = capsys.readouterr()
    assert str(home / ".claude.json") in said.err
    assert "my-shop" in said.out


def test_names_in_a_file_cannot_command_the_terminal(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    servers = {"x\x1b[2J\tname\n": {"command": "c\x1b[2J"}, "y": {"url": "https://\u202e"}}
    (home / "work" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert main(["discover"]) == Status.OK
    said = capsys.readouterr().out
    assert {"\x1b", "\u202e"}.isdisjoint(said)
    assert len(said.splitlines()) == 3


@pytest.mark.parametrize(
    ("host", "words", "expected"),
    [
        ("claude-desktop", [], True),
        # It has a token already, or logs in by itself.
        ("claude-desktop", ["--header", "Authorization=Bearer x"], False),
        ("cursor", [], False),
    ],
)
def test_a_host_that_only_starts_commands_needs_a_login_of_this_command(
    home: Path, capsys: pytest.CaptureFixture[str], host: str, words: list[str], expected: bool
) -> None:
    url = "https://mcp.example.com/mcp"
    assert install(host, url, "--name", "notes", *words) == Status.OK
    assert (f"trio-mcp login {url}" in capsys.readouterr().err) == expected
