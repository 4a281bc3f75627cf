"""`trio-mcp publish` and `trio-mcp bundle`: the files that they write."""

from __future__ import annotations

import json
import os
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
from naming import unnamed

from trio_mcp.cli.command import Status
from trio_mcp.cli.program import main

PROJECT = """
[project]
name = "weather-mcp"
version = "1.2.3"
description = "Tells the weather."
authors = [{name = "Ada"}]
license = "MIT"
dependencies = ["trio-mcp>=0.1"]
[project.scripts]
weather-mcp = "weather:main"
[project.urls]
Repository = "https://github.com/ada/weather"
"""
SERVER = '''from trio_mcp import Server
server = Server("weather", version="9", title="Weather")
@server.tool
def forecast(city: str) -> str:
    """Tell the weather."""
    return city
'''
LINE = "<!-- mcp-name: io.github.ada/weather-mcp -->\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loads_files: None) -> Path:
    """The current folder, with a project in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "README.md").write_text(f"# Weather\n{LINE}")
    (tmp_path / "weather.py").write_text(SERVER)
    return tmp_path


def published(*words: str) -> int:
    return main(["publish", "--server-json", *words])


def test_server_json_says_what_the_project_says(folder: Path) -> None:
    assert published("--secret", "KEY", "--env", "PLACE", "--remote", "https://x.example/mcp") == Status.OK
    assert json.loads((folder / "server.json").read_text()) == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.ada/weather-mcp",
        "description": "Tells the weather.",
        "version": "1.2.3",
        "repository": {"url": "https://github.com/ada/weather", "source": "github"},
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "weather-mcp",
                "version": "1.2.3",
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
                "environmentVariables": [
                    {"name": "PLACE", "isRequired": True},
                    {"name": "KEY", "isRequired": True, "isSecret": True},
                ],
            }
        ],
        "remotes": [{"type": "streamable-http", "url": "https://x.example/mcp"}],
    }


def test_a_server_that_only_runs_somewhere_needs_no_package(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "README.md").unlink()
    assert published("--no-package", "--remote", "https://x.example/mcp", "--output", "-") == Status.OK
    assert "packages" not in json.loads(capsys.readouterr().out)
    assert not (folder / "server.json").exists()


@pytest.mark.parametrize(
    "readme", ["", LINE.replace("weather-mcp", "weather-mcp-2"), "mcp-name: io.github.ada/weather"]
)
def test_a_readme_without_its_line_is_status_1(readme: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "README.md").write_text(readme)
    assert published() == Status.TOOL_ERROR
    assert LINE.strip() in capsys.readouterr().err


@pytest.mark.parametrize(
    "target", ["", "weather.py", "weather.py:server", "weather", "mcp.json:weather", "python weather.py"]
)
def test_the_project_is_that_of_a_folder_or_of_the_code_of_a_target(
    target: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = {"weather": {"command": sys.executable, "args": ["-m", "trio_mcp", "run", str(folder / "weather.py")]}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert published("--json", *filter(None, [target])) == Status.OK
    said = json.loads(capsys.readouterr().out)
    assert (said["file"], said["missing"]) == ("server.json", None)
    assert said["server"] == json.loads((folder / "server.json").read_text())
    assert said["server"]["packages"][0]["identifier"] == "weather-mcp"


@pytest.mark.parametrize("target", ["https://x.example/mcp", "npx x", "none/"])
def test_a_target_without_code_has_no_project(target: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert published(target) in (Status.USAGE, Status.UNREACHABLE)
    assert target.rstrip("/") in capsys.readouterr().err
    assert not (folder / "server.json").exists()


def test_the_line_that_is_missing_is_in_the_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "README.md").unlink()
    assert published("--json", "--output", "-") == Status.TOOL_ERROR
    said = json.loads(capsys.readouterr().out)
    assert (said["file"], said["missing"]) == (None, LINE.strip())


def test_a_script_that_hosts_cannot_start_is_a_warning(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text(PROJECT.replace("weather-mcp = ", "weather = "))
    assert published() == Status.OK
    assert unnamed(capsys.readouterr().err, "warning", "uvx weather-mcp") == []


@pytest.mark.parametrize(
    ("change", "words", "names"),
    [
        (("", ""), ["--name", "weather"], ["'weather'"]),
        (("https://github.com", "https://code.example"), [], ["--name"]),
        (('description = "Tells the weather."\n', ""), [], ["--description"]),
        (("Tells the weather.", "x" * 101), [], ["101", "100", "--description"]),
        (('version = "1.2.3"\n', 'dynamic = ["version"]\n'), [], ["--version"]),
        (("", ""), ["--no-package"], ["--remote"]),
    ],
)
def test_what_the_registry_would_reject_is_refused(
    change: tuple[str, str], words: list[str], names: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pyproject.toml").write_text(PROJECT.replace(*change))
    assert published(*words) == Status.USAGE
    assert unnamed(capsys.readouterr().err, *names) == []
    assert not (folder / "server.json").exists()


def test_publish_needs_to_know_what_to_write(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["publish"]) == Status.USAGE
    assert "--server-json" in capsys.readouterr().err


def test_a_project_file_that_cannot_be_read_is_one_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").write_text("[project")
    for words in (["publish", "--server-json"], ["bundle", "weather.py"]):
        assert main(words) == Status.UNREACHABLE
        (line,) = capsys.readouterr().err.splitlines()
        assert "pyproject.toml" in line


# bundles


def bundled(folder: Path, *words: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the other files of a bundle."""
    assert main(["bundle", *words, "--output", "out.mcpb"]) == Status.OK
    with zipfile.ZipFile(folder / "out.mcpb") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(files.pop("manifest.json")), files


def test_a_bundle_has_a_manifest_and_the_files_of_the_project(folder: Path) -> None:
    for name in (".env", "src/x.py", "src/__pycache__/x.pyc", ".venv/lib/y.py", "notes/secret.txt", "tests/t.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "out").symlink_to("/etc/passwd")
    (folder / ".mcpbignore").write_text("# not these\nnotes/\n")
    manifest, files = bundled(folder, "weather.py:server", "--secret", "KEY", "--exclude", "tests/*")
    assert set(files) == {"pyproject.toml", "README.md", "weather.py", "src/x.py"}
    assert manifest == {
        "manifest_version": "0.4",
        "name": "weather-mcp",
        "display_name": "Weather",
        "version": "1.2.3",
        "description": "Tells the weather.",
        "author": {"name": "Ada"},
        "repository": {"type": "git", "url": "https://github.com/ada/weather"},
        "license": "MIT",
        "server": {
            "type": "uv",
            "entry_point": "weather.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--directory", "${__dirname}", "trio-mcp", "run", "weather.py:server"],
                "env": {"KEY": "${user_config.key}"},
            },
        },
        "tools": [{"name": "forecast", "description": "Tell the weather."}],
        "compatibility": {"platforms": ["darwin", "linux"], "runtimes": {"python": ">=3.11"}},
        "user_config": {
            "key": {
                "type": "string",
                "title": "KEY",
                "description": "The value of KEY",
                "required": True,
                "sensitive": True,
            }
        },
    }


KEY_RING = "A" * 43 + "\n" + "E" * 43 + "\n"
SECRETS: dict[str, bytes] = {
    "shop.db": b"",
    "shop.store": b"SQLite format 3\0rest",
    "shop.db-wal": b"",
    "server.key": b"",
    "server.pem": b"comment\n-----BEGIN EC PRIVATE KEY-----\n",
    "keys.txt": KEY_RING.encode(),
    "production.env": b"TOKEN=secret",
    "client_secret_1.apps.json": b"{}",
    "service-account.json": b"{}",
    "secrets.yaml": b"",
    "env.production": b"TOKEN=secret",
    "prod.env.txt": b"TOKEN=secret",
    "config/secrets.toml": b"",
    "credentials.json": b"{}",
    "terraform.tfstate": b"{}",
    "me.ppk": b"",
    "putty.txt": b"PuTTY-User-Key-File-3: ssh-ed25519",
    "me.asc": b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n",
    "account.json": b'{"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIE\\n-----END PRIVATE KEY-----\\n"}',
    "bom.pem": b"\xef\xbb\xbf-----BEGIN PRIVATE KEY-----\n",
    "utf16.pem": "-----BEGIN PRIVATE KEY-----\nMIIE".encode("utf-16"),
    "chain.pem": b"-----BEGIN CERTIFICATE-----\n" + b"MIID" * 1100 + b"\n-----BEGIN RSA PRIVATE KEY-----\n",
    "secret.yaml": b"key: |\n    -----BEGIN PRIVATE KEY-----\n    MIIE\n",
    "deploy/id_ed25519": b"-----BEGIN OPENSSH PRIVATE KEY-----\n",
}
HARMLESS: dict[str, bytes] = {
    "ca.pem": b"-----BEGIN CERTIFICATE-----\n",
    "keys.py": b"MARK = '-----BEGIN PRIVATE KEY-----'\n",
    "data.csv": b"A" * 44,
    "env.py": b"TOKEN = None\n",
    "docs/env.md": b"Set TOKEN.\n",
    "me.pub.asc": b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n",
    "pem.py": b"text = '-----BEGIN PRIVATE KEY-----\\n' + body\n",
    "logo.bin": bytes(range(256)) * 100,
}


def test_keys_and_databases_are_not_in_a_bundle_and_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in {**SECRETS, **HARMLESS}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    _, files = bundled(folder, "weather.py")
    assert {*files} == {"pyproject.toml", "README.md", "weather.py", *HARMLESS}
    assert unnamed(capsys.readouterr().err, *SECRETS, "--include") == []
    _, files = bundled(folder, "weather.py", "--include", "*.db", "--include", "deploy/*", "--exclude", "*.bin")
    assert {*files} & {*SECRETS} == {"shop.db", "deploy/id_ed25519"}


def test_hidden_files_and_links_that_are_left_out_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / ".env").write_text("TOKEN=secret")
    (folder / ".git").mkdir()
    (folder / "passwords").symlink_to("/etc/passwd")
    (folder / "elsewhere").symlink_to("/etc")
    (folder / "ignored").symlink_to("/etc")
    assert main(["bundle", "weather.py", "--json", "--exclude", "ignored"]) == Status.OK
    out, err = capsys.readouterr()
    assert unnamed(err, ".env", ".git", "passwords", "elsewhere") == []
    left_out = json.loads(out)["left_out"]
    assert (left_out[".env"], left_out["passwords"]) == (left_out[".git"], left_out["elsewhere"])
    assert {*left_out} == {".env", ".git", "passwords", "elsewhere"}


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--include", ".env"], [".env", "hidden"]),
        (["--include", "passwords"], ["passwords", "link"]),
        (["--include", "nothing*"], ["nothing*"]),
        (["--include", "*.db", "--include", "server.key"], ["server.key"]),
        (["--include", "shop.db", "--exclude", "*.db"], ["shop.db", "--exclude"]),
    ],
)
def test_a_pattern_to_include_that_packs_nothing_is_refused(
    words: list[str], names: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / ".env").write_text("TOKEN=secret")
    (folder / "passwords").symlink_to("/etc/passwd")
    (folder / "shop.db").touch()
    assert main(["bundle", "weather.py", *words]) == Status.USAGE
    assert unnamed(capsys.readouterr().err, "--include", *names) == []
    assert [*folder.glob("*.mcpb")] == []


def test_what_a_bundle_has_is_listed_before_it_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "weather.py", "--output", "none/out.mcpb"]) == Status.UNREACHABLE
    *listed, error = capsys.readouterr().err.splitlines()
    assert unnamed("\n".join(listed), "manifest.json", "weather.py", "README.md") == []
    assert "none/out.mcpb" in error


def test_each_file_of_a_bundle_is_listed_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a\nmanifest.json.txt", "b\nmanifest.json.key"):
        (folder / name).write_text("")
    bundled(folder, "weather.py")
    listed = capsys.readouterr().err.splitlines()
    assert [line for line in listed if line.lstrip().startswith("manifest")] == ["  manifest.json"]


@pytest.mark.parametrize("kind", ["link", "dangling", "device", "FIFO"])
def test_a_file_that_no_bundle_can_have_is_an_error(
    kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "pyproject.toml"
    path.rename(folder / "real.toml")
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to({"link": "real.toml", "dangling": "none.toml", "device": "/dev/zero"}[kind])
    assert main(["bundle", "weather.py", "--author", "Ada", "--description", "W."]) != Status.OK
    assert "pyproject.toml" in capsys.readouterr().err
    assert not [*folder.glob("*.mcpb")]


def test_a_bundle_needs_the_patterns_of_its_author(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / ".mcpbignore").write_bytes(b"\xff")
    assert main(["bundle", "weather.py"]) == Status.UNREACHABLE
    assert ".mcpbignore" in capsys.readouterr().err
    assert not [*folder.glob("*.mcpb")]


def test_the_same_files_are_the_same_bundle(folder: Path) -> None:
    bundled(folder, "weather.py")
    first = (folder / "out.mcpb").read_bytes()
    bundled(folder, "weather.py")
    assert (folder / "out.mcpb").read_bytes() == first


def test_all_that_a_bundle_of_a_file_lacks_is_named_at_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "pyproject.toml").unlink()
    assert main(["bundle", "weather.py"]) == Status.USAGE
    assert unnamed(capsys.readouterr().err, "--description", "--author", "pyproject.toml") == []


def test_a_file_without_a_project_gets_one_that_needs_trio_mcp(folder: Path) -> None:
    (folder / "pyproject.toml").unlink()
    manifest, files = bundled(folder, "weather.py", "--author", "Ada", "--description", "W.", "--with", "httpx2>=2")
    project = tomllib.loads(files["pyproject.toml"].decode())["project"]
    assert (project["name"], project["version"], manifest["name"]) == ("weather", "9", "weather")
    assert [each.partition(">")[0] for each in project["dependencies"]] == ["trio-mcp", "httpx2"]


@pytest.mark.parametrize(
    ("change", "words", "names"),
    [
        (('authors = [{name = "Ada"}]\n', ""), [], ["--author"]),
        (('"trio-mcp>=0.1"', '"httpx2"'), [], ["trio-mcp", "dependencies"]),
        (("", ""), ["--with", "httpx2"], ["--with"]),
        (("", ""), ["--exclude", "weather.py"], ["weather.py", "--exclude"]),
    ],
)
def test_what_no_host_could_start_is_refused(
    change: tuple[str, str], words: list[str], names: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pyproject.toml").write_text(PROJECT.replace(*change))
    assert main(["bundle", "weather.py", *words]) == Status.USAGE
    assert unnamed(capsys.readouterr().err, *names) == []
    assert [*folder.glob("*.mcpb")] == []


def test_a_module_is_bundled_with_its_project_and_started_by_its_name(folder: Path) -> None:
    (folder / "bundled_shop").mkdir()
    (folder / "bundled_shop" / "__init__.py").write_text("")
    (folder / "bundled_shop" / "server.py").write_text(SERVER)
    manifest, files = bundled(folder, "bundled_shop.server:server")
    assert manifest["server"]["entry_point"] == "bundled_shop/server.py"
    assert manifest["server"]["mcp_config"]["args"][-1] == "bundled_shop.server:server"
    assert "bundled_shop/server.py" in files


def test_a_server_of_a_file_of_a_host_is_bundled_by_the_file_that_it_starts(folder: Path) -> None:
    words = ["-m", "trio_mcp", "run", str(folder / "weather.py")]
    servers = {"weather": {"command": sys.executable, "args": words}}
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    manifest, _ = bundled(folder, "mcp.json:weather")
    assert manifest["server"]["entry_point"] == "weather.py"


def test_an_installed_module_is_not_bundled(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = folder / "site-packages"
    place.mkdir()
    (place / "installed_weather.py").write_text(SERVER)
    sys.path.insert(0, str(place))
    assert main(["bundle", "installed_weather"]) == Status.USAGE
    assert "installed_weather" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["https://x.example/mcp", "npx -y some-server"])
def test_only_python_code_can_be_bundled(target: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", target]) == Status.USAGE
    assert repr(target) in capsys.readouterr().err
