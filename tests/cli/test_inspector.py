"""The command that opens the Inspector for a server, and what its user reads where it cannot be opened."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from trio_mcp.cli.command import CommandError, Status
from trio_mcp.cli.commands.dev import PACKAGE, find_npx, inspector_command, outdated_node
from trio_mcp.cli.program import main

URL = "http://127.0.0.1:8000/mcp"


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
def test_the_inspector_gets_the_url_the_transport_and_the_era(era: str) -> None:
    assert inspector_command("npx", URL, era) == [
        *("npx", "-y", PACKAGE),
        *("--server-url", URL, "--transport", "http", "--protocol-era", era),
    ]


def test_http_and_sse_is_of_the_legacy_era_whatever_era_was_wanted() -> None:
    assert inspector_command("npx", URL, "modern", sse=True)[3:] == [
        *("--server-url", URL, "--transport", "sse", "--protocol-era", "legacy")
    ]


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_without_npx_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandError) as caught:
        find_npx()
    assert caught.value.status is Status.UNREACHABLE
    assert [each for each in ("npx", "Node.js", "nodejs.org") if each not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("said", "outdated"), [("v20.20.2", "v20.20.2"), ("v22.18.9", "v22.18.9"), ("v22.19.0", None), ("odd", None)]
)
def test_a_node_too_old_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, outdated: str | None
) -> None:
    program(tmp_path, "node", f"echo {said}")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert outdated_node() == outdated


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["http://127.0.0.1:1/mcp"], "trio-mcp serve"),
        (["{app}", "--stdio", "--inspector"], "--inspector"),
        (["{app}", "--stdio", "--port", "80"], "--port"),
        (["{app}", "--stdio", "--sse"], "--sse"),
        (["{app}:shop"], "inspected_app.py:server"),
    ],
)
def test_what_dev_cannot_serve_is_refused(
    arguments: list[str],
    named: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    app = tmp_path / "inspected_app.py"
    app.write_text("from trio_mcp import Server\nserver = Server('x')\n")
    assert main(["dev", *(each.format(app=app) for each in arguments)]) != 0
    sys.modules.pop("inspected_app", None)
    assert named in capsys.readouterr().err
