"""Hosts from npm connect to the servers that `trio-mcp install` writes into their files; none needs a login for that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from serving import IMPORTS

LIMIT = 60.0
APP = """\
from trio_mcp import Server

server = Server("shop")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The home of a user, and a folder in it with a server that Gemini CLI trusts: in others it starts nothing."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "app.py").write_text(APP)
    (tmp_path / ".gemini").mkdir()
    trusted = {str(tmp_path / "work"): "TRUST_FOLDER"}
    (tmp_path / ".gemini" / "trustedFolders.json").write_text(json.dumps(trusted))
    return tmp_path


async def run(home: Path, *command: str | Path) -> tuple[int, str]:
    """Run a command in the folder of the server; return its status and all that it said."""
    left_out = ("CLAUDE_CONFIG_DIR", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    environment |= {**IMPORTS, "HOME": str(home), "DISABLE_AUTOUPDATER": "1", "NO_COLOR": "1"}
    environment["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
    with trio.fail_after(LIMIT):
        done = await trio.run_process(
            [str(word) for word in command],
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
            env=environment,
            cwd=home / "work",
        )
    return done.returncode, done.stdout.decode()


async def install(home: Path, host: str, *options: str) -> None:
    status, said = await run(
        home, sys.executable, "-m", "trio_mcp", "install", host, home / "work" / "app.py", "--yes", *options
    )
    assert status == 0, said


async def test_claude_code_connects_to_a_server_that_was_installed(host_programs: Path, home: Path) -> None:
    claude = ["node", host_programs / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"]
    await install(home, "claude-code")
    status, said = await run(home, *claude, "mcp", "get", "shop")
    assert (status, "Connected" in said) == (0, True), said


async def test_gemini_cli_connects_to_a_server_in_a_file_with_comments(host_programs: Path, home: Path) -> None:
    gemini = ["node", host_programs / "@google" / "gemini-cli" / "bundle" / "gemini.js"]
    settings = home / ".gemini" / "settings.json"
    settings.write_text('{\n  // mine\n  "mcpServers": {} /* none */ // yet\n}\n')
    await install(home, "gemini-cli")
    status, said = await run(home, *gemini, "mcp", "list")
    assert (status, "shop: " in said, "Connected" in said) == (0, True, True), said
    # Why `install` refuses these.
    settings.write_text('{"mcpServers": {},}')
    status, said = await run(home, *gemini, "mcp", "list")
    assert status != 0, said
