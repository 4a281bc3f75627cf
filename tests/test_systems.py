"""What needs a POSIX system raises an error on Windows that names it, and nothing else fails there for want of one.

Nothing of this ran on Windows: `make platforms` checks the types for it, and these tests take away what it lacks.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
from serving import served

from trio_mcp import Server
from trio_mcp.auth import AuthorizationError, TokenFiles
from trio_mcp.errors import AuthorizationErrorKind, ConfigurationError
from trio_mcp.session import find_transport
from trio_mcp_transports.http import serve_http

SECONDS = 120

ON_WINDOWS = """
import importlib, os, pkgutil, select, signal, socket, sys

def load():
    for package in ("trio_mcp", "trio_mcp_transports"):
        for each in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
            if not each.name.endswith("__main__"):
                importlib.import_module(each.name)

pair, unix = socket.socketpair, socket.AF_UNIX
socket.socketpair = lambda *_family: pair(unix)
load()  # with all packages of others, which look at the system themselves
for name in [name for name in sys.modules if name.startswith("trio_mcp")]:
    del sys.modules[name]

for name in ("fcntl", "resource", "termios"):
    sys.modules[name] = None
for module, names in {
    os: "getuid killpg getpgrp tcgetpgrp register_at_fork pwrite sysconf O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK",
    select: "poll POLLIN POLLHUP POLLERR POLLRDHUP PIPE_BUF",
    signal: "SIGHUP SIGKILL SIGSTOP SIGCONT SIGUSR1",
    socket: "AF_UNIX SOCK_CLOEXEC SO_PEERCRED",
}.items():
    for name in names.split():
        delattr(module, name)
sys.platform = "win32"
load()

import trio
from trio_mcp import Client, Server

server = Server("shop")

@server.tool
async def price(item: str) -> str:
    return item + ": 3 euros"

async def main():
    async with Client.connect(sys.argv[1] if sys.argv[1:] else server) as client:
        print(await client.call_tool("price", {"item": "tea"}))

trio.run(main)
"""


async def serve_over_stdio() -> None:
    await find_transport("stdio").serve(Server("shop"))


async def serve_over_http() -> None:
    await serve_http(Server("shop"), port=0)


async def start_a_command() -> None:
    async with find_transport("stdio").connect([sys.executable, "--version"]):
        pytest.fail("it was started")


@pytest.mark.parametrize("start", [serve_over_stdio, serve_over_http, start_a_command])
@pytest.mark.usefixtures("on_windows")
async def test_a_transport_that_needs_posix_is_refused_on_windows(start: Callable[[], Awaitable[None]]) -> None:
    with pytest.raises(ConfigurationError, match="WSL"):
        await start()


@pytest.mark.usefixtures("on_windows")
async def test_logins_in_files_are_refused_on_windows_and_the_error_names_what_to_write(tmp_path: Path) -> None:
    files = TokenFiles(tmp_path)
    with pytest.raises(AuthorizationError, match=r"MemoryTokens\(\)") as read:
        await files.read("https://mcp.example/mcp")
    with pytest.raises(AuthorizationError) as locked:
        async with files.lock("https://mcp.example/mcp"):
            pytest.fail("it was locked")
    assert read.value.kind is locked.value.kind is AuthorizationErrorKind.STORE
    assert not files.has("https://mcp.example/mcp")


def test_every_module_loads_and_a_server_answers_in_memory_without_what_windows_lacks() -> None:
    assert "tea: 3 euros" in output_on_windows()


@pytest.mark.wires
async def test_a_client_over_http_calls_a_server_without_what_windows_lacks() -> None:
    server = Server("shop")

    @server.tool
    async def price(item: str) -> str:
        return f"{item}: 4 euros"

    async with served(server) as url:
        assert "tea: 4 euros" in await trio.to_thread.run_sync(output_on_windows, url)


def output_on_windows(*arguments: str) -> str:
    command = [sys.executable, "-c", ON_WINDOWS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout
