"""What the text of a target names."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from naming import unnamed

from trio_mcp.cli.command import CommandError
from trio_mcp.cli.targets.loading import load_server
from trio_mcp.cli.targets.target import CommandTarget, PythonTarget, Target, UrlTarget, code_of, read_target


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads_files: None) -> Path:
    """The current folder, with a file, a module, a package and the file of a host."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    server = "from trio_mcp import Server\nserver = Server({!r})\ndef make(): return Server('made')\n"
    (tmp_path / "one_server.py").write_text(server.format("one"))
    (tmp_path / "my server.py").write_text(server.format("spaced"))
    (tmp_path / "shop_package").mkdir()
    (tmp_path / "shop_package" / "__init__.py").touch()
    (tmp_path / "shop_package" / "app.py").write_text(server.format("shop"))
    servers = {
        "local": {"command": "python", "args": ["s.py", "${HOME}"], "env": {"A": "${B:-c}"}},
        "web": {"url": "https://x.example/mcp", "headers": {"authorization": "Bearer ${env:TOKEN}"}},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("http://127.0.0.1:8000/mcp", UrlTarget("http://127.0.0.1:8000/mcp")),
        ("WSS://x/mcp", UrlTarget("WSS://x/mcp")),
        ("one_server.py", PythonTarget(Path("one_server.py"))),
        ("one_server.py:make", PythonTarget(Path("one_server.py"), "make")),
        ("my server.py:server", PythonTarget(Path("my server.py"), "server")),
        ("one_server", PythonTarget("one_server")),
        ("shop_package.app:make", PythonTarget("shop_package.app", "make")),
        ("python one_server.py --fast", CommandTarget(("python", "one_server.py", "--fast"))),
        ("'a b' c", CommandTarget(("a b", "c"))),
        ("true", CommandTarget(("true",))),
        ("./server --stdio", CommandTarget(("./server", "--stdio"))),
    ],
)
def test_a_text_names_a_url_a_file_a_module_or_a_command(text: str, target: Target) -> None:
    assert read_target(text) == target


@pytest.mark.parametrize("where", ["mcp.json", "cursor"])
def test_a_server_in_the_file_of_a_host_is_named_by_the_file_or_the_host(
    where: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    assert read_target(f"{where}:local") == CommandTarget(("python", "s.py", str(folder)), {"A": "c"})
    assert read_target(f"{where}:web") == UrlTarget("https://x.example/mcp", {"authorization": "Bearer secret"})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("htp://x", ["'htp://x'", "http, https, ws, wss"]),
        ("http://", ["http://", "host"]),
        ("http://[::1/mcp", ["host"]),
        ("http://localhost:99999/mcp", ["http://localhost:99999/mcp", "port"]),
        ("", ["empty"]),
        ("python 'a", ["not a command"]),
        ("none.py", ["there is no file none.py"]),
        ("127.0.0.1:8000/mcp", ["do you mean http://127.0.0.1:8000/mcp?"]),
        ("localhost:8000", ["do you mean http://localhost:8000?"]),
        ("localhost/mcp", ["do you mean http://localhost/mcp?"]),
        ("[::1]:8000/mcp", ["do you mean http://[::1]:8000/mcp?"]),
        ("mcp.example.com/mcp", ["do you mean https://mcp.example.com/mcp?"]),
        ("mcp.example.com:8443/x", ["do you mean https://mcp.example.com:8443/x?"]),
        ("none.old/server", ["there is no file none.old/server", "no module or command"]),
        ("no-such-command", ["no-such-command", "module"]),
        ("none:server", ["none:server", "module"]),
        (".", ["folder"]),
        ("shop_package/", ["folder"]),
        ("none.json:x", ["there is no file none.json"]),
        ("mcp.json", ["mcp.json:local", "mcp.json:web"]),
        ("mcp.json:none", ["'none'", "mcp.json:local"]),
        ("cursor:none", ["cursor", "'none'"]),
        ("mcp.json:web", ["'web'", "TOKEN"]),
    ],
)
def test_a_text_that_names_nothing_is_an_error(text: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOKEN", raising=False)
    with pytest.raises(CommandError) as caught:
        read_target(text)
    assert unnamed(str(caught.value), *names) == []


@pytest.mark.parametrize(
    ("text", "name"), [("one_server", "one"), ("shop_package.app", "shop"), ("shop_package.app:make", "made")]
)
def test_the_server_of_a_module_is_loaded(text: str, name: str) -> None:
    assert load_server(text).identity.name == name


def test_a_module_that_fails_is_named_with_the_line(folder: Path) -> None:
    (folder / "broken_server.py").write_text("\n1 / 0\n")
    with pytest.raises(CommandError) as caught:
        load_server("broken_server:server")
    assert unnamed(str(caught.value), "broken_server.py, line 2", "ZeroDivisionError") == []


def test_a_module_that_a_package_lacks_is_named() -> None:
    with pytest.raises(CommandError) as caught:
        load_server("shop_package.none")
    assert unnamed(str(caught.value), "shop_package.none", "ModuleNotFoundError") == []


def test_a_server_of_gemini_cli_has_variables_without_braces(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    servers = {"one": {"command": "run", "args": ["$TOKEN", "a-${TOKEN}"], "env": {"PRICE": "5$"}}}
    (folder / ".gemini").mkdir()
    (folder / ".gemini" / "settings.json").write_text(json.dumps({"mcpServers": servers}))
    assert read_target("gemini-cli:one") == CommandTarget(("run", "secret", "a-secret"), {"PRICE": "5$"})


def test_variables_in_a_file_that_a_server_names_are_passed_to_it(folder: Path) -> None:
    (folder / "shop.env").write_text("KEY=x\n")
    server = {"command": "run", "envFile": "shop.env", "cwd": "shop"}
    (folder / "one.json").write_text(json.dumps({"mcpServers": {"one": server}}))
    assert read_target("one.json") == CommandTarget(("run",), {"KEY": "x"}, str(folder / "shop"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("one_server.py:make", PythonTarget(Path("one_server.py"), "make")),
        ("python one_server.py", PythonTarget(Path("one_server.py"))),
        ("/opt/x/bin/python3.13 -u one_server.py", PythonTarget(Path("one_server.py"))),
        ("python -m trio_mcp run one_server.py:make", PythonTarget(Path("one_server.py"), "make")),
        ("trio-mcp run --log-level info shop_package.app:make", PythonTarget("shop_package.app", "make")),
        ("trio-mcp dev one_server.py --stdio", PythonTarget(Path("one_server.py"))),
        ("'trio-mcp' run 'my server.py'", PythonTarget(Path("my server.py"))),
    ],
)
def test_the_code_of_a_command_is_the_file_or_module_that_it_starts(text: str, code: PythonTarget) -> None:
    assert code_of(read_target(text)) == code


@pytest.mark.parametrize(
    "text",
    [
        "https://x.example/mcp",
        "npx -y shop",
        "python -m http.server",
        "trio-mcp run https://x.example/mcp",
        "sh -c x.py",
    ],
)
def test_other_targets_have_no_code_of_ours(text: str) -> None:
    assert code_of(read_target(text)) is None


def test_the_code_of_a_server_in_the_file_of_a_host_gets_its_folder_and_variables(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODE_KEY", "")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "far_server.py").write_text((folder / "one_server.py").read_text())
    env = {"CODE_KEY": "k", "PYTHONPATH": str(folder / "shop_package")}
    entry = {"command": "python", "args": ["far_server.py"], "cwd": str(folder / "elsewhere"), "env": env}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"far": entry}}))
    assert code_of(read_target("mcp.json:far")) == PythonTarget(folder / "elsewhere" / "far_server.py")
    assert os.environ["CODE_KEY"] == "k"
    assert str(folder / "shop_package") in sys.path
