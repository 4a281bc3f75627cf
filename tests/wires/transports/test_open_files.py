"""A Python file that asks for authentication is not served without, by way of a proxy either: by the API and by each command."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
from naming import unnamed
from serving import IMPORTS, START, served

from trio_mcp import Client, Server, proxy
from trio_mcp.errors import ConfigurationError
from trio_mcp.server import Mountable

NOTES = """
from trio_mcp import HttpOptions, Server
async def authenticate(headers): return None
server = Server("notes", http=HttpOptions(authenticate=authenticate))
@server.tool
async def secret() -> str: return "SECRET"
"""
OPEN = NOTES.replace(", http=HttpOptions(authenticate=authenticate)", "").replace("SECRET", "open")
COMMAND = [sys.executable, "-c", "import time; time.sleep(60)", "--token", "hunter2"]
FILES = {
    "command.py": f"from trio_mcp import proxy\nserver = proxy({COMMAND!r})",
    "notes.py": NOTES,
    "open.py": OPEN,
    "far.py": "from trio_mcp import proxy\nserver = proxy('notes.py')",
    "hub.py": "from trio_mcp import Server, proxy\nserver = Server('hub')\nserver.mount('far', proxy('notes.py'))",
    "bearer.py": "from trio_mcp import proxy\nserver = proxy('https://a.example.com/mcp', headers={'Cookie': 'x'})",
    "bare.py": OPEN + "server.run()",
    "asking.py": NOTES + "server.run()",
    "broken.py": "from trio_mcp import Server\nserver = Server(",
    "mcp.json": json.dumps(
        {
            "mcpServers": {
                "far": {"url": "https://a.example.com/mcp", "headers": {"Authorization": "Bearer x"}},
                "notes": {"command": sys.executable, "args": ["-m", "trio_mcp", "run", "notes.py"]},
            }
        }
    ),
}
URL = "https://a.example.com/mcp"
BACKFILL = ["backfill", "--provider", "http://127.0.0.1:1/v1", "--http", "--port", "0"]
TOKEN = ["--header", "authorization=Bearer x"]
COMMANDS = {
    "serve a file with a proxy": ["serve", "far.py"],
    "serve a file with a hub": ["serve", "hub.py"],
    "serve a file with a URL": ["serve", "bearer.py"],
    "serve one of several": ["serve", "/open=open.py", "/far=far.py"],
    "serve a URL": ["serve", URL, *TOKEN],
    "serve a URL of several": ["serve", "/open=open.py", f"/far={URL}", *TOKEN],
    "serve a URL of a configuration": ["serve", "mcp.json:far"],
    "serve a command of a configuration": ["serve", "mcp.json:notes"],
    "serve a command": ["serve", f"{sys.executable} -m trio_mcp run notes.py"],
    "serve a command that is spelled otherwise": ["serve", f"env -S '{sys.executable} -mtrio_mcp.cli run notes.py'"],
    "serve a command with backfill": [
        "serve",
        f"{sys.executable} -m trio_mcp backfill -- {sys.executable} -m trio_mcp run far.py",
    ],
    "serve a command with a token": ["serve", f"{sys.executable} -m trio_mcp run {URL} --header authorization=hunter2"],
    "dev": ["dev", "hub.py"],
    "backfill a file": [*BACKFILL, "notes.py"],
    "backfill a command": [*BACKFILL, "--", sys.executable, "-m", "trio_mcp", "run", "far.py"],
    "backfill what sends credentials": [*BACKFILL, "--", sys.executable, "-m", "trio_mcp", "run", "bearer.py"],
    "backfill a URL": [*BACKFILL, *TOKEN, URL],
}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        tmp_path.joinpath(name).write_text(text)


async def authenticate(headers: Mapping[str, str]) -> str | None:
    return headers.get("authorization")


def far(file: str) -> Mountable:
    return proxy(file, env=IMPORTS)


@pytest.mark.parametrize("file", ["notes.py", "far.py", "hub.py", "bearer.py", "asking.py", "broken.py"])
async def test_a_file_is_not_served_if_it_asks_for_authentication_or_that_is_unknown(file: str) -> None:
    hub = Server("hub")
    hub.mount("far", far(file))
    for server in (far(file), hub):
        with trio.fail_after(START), pytest.raises(ConfigurationError, match=file):
            await server.serve("http", port=0)


async def test_a_file_that_asks_for_nothing_is_served_and_one_that_asks_with_authentication() -> None:
    with trio.fail_after(START):
        for file in ("open.py", "bare.py"):
            async with served(far(file)) as url, Client.connect(url) as client:
                assert (await client.call_tool("secret")).text == "open"
        async with (
            served(far("notes.py"), authenticate=authenticate) as url,
            Client.connect(url, headers={"authorization": "ann"}) as client,
        ):
            assert (await client.call_tool("secret")).text == "SECRET"


@pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)
def test_no_command_serves_it(arguments: list[str]) -> None:
    name, *more = arguments
    free_port = [] if "--port" in more else ["--port", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "trio_mcp", name, *free_port, *more],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START,
        env={**os.environ, **IMPORTS},
    )
    assert done.returncode not in (0, 70), done.stderr
    assert "serves MCP at" not in done.stderr
    assert "Traceback" not in done.stderr
    (line,) = done.stderr.splitlines()
    assert unnamed(line, "authenticate=", "run", "mount") == []
    assert "Bearer" not in line
    assert "hunter2" not in line


async def test_a_command_is_served_to_the_network_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    network = {"host": "0.0.0.0", "allowed_hosts": ["mcp.example.com"]}

    async def warnings(target: Mountable, **options: object) -> int:
        caplog.clear()
        with trio.fail_after(START), caplog.at_level(logging.WARNING, "trio_mcp.http"):
            async with served(target, **options):
                assert "hunter2" not in caplog.text
                return sum("authenticate=" in record.getMessage() for record in caplog.records)

    for target in (proxy(COMMAND), far("command.py")):
        assert await warnings(target, **network) == 1
        assert await warnings(target, **network, authenticate=authenticate) == 0
        assert await warnings(target) == 0
