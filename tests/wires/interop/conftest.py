"""Servers that the tests of this folder share, and the TypeScript SDK."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
from processes import HERE, Target, command_of, over_http

PACKAGES = {"@modelcontextprotocol/client": "2", "@modelcontextprotocol/server": "2", "@modelcontextprotocol/sdk": "1"}
"""The TypeScript SDK, with the first major version beside the second: it has the tasks of 2025-11-25."""

HOSTS = {"@anthropic-ai/claude-code": "2", "@google/gemini-cli": "0"}
"""Hosts that list their servers without a login."""

INSTALL_TIMEOUT = 60.0
HOSTS_TIMEOUT = 240.0


@pytest.fixture(scope="session")
def target() -> Iterator[Target]:
    """Each server over HTTP starts when it is first asked for, and serves the rest of the session."""
    with ExitStack() as servers:

        @cache
        def url(script: str, transport: str) -> str:
            return servers.enter_context(over_http(command_of(script, transport)))

        def target(script: str, transport: str) -> str | list[str]:
            return command_of(script, transport) if transport == "stdio" else url(script, transport)

        yield target


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """A folder in which node finds the TypeScript SDK, with our scripts.

    The SDK is installed once, into the folder that `TRIO_MCP_NODE_CACHE` names (else one for temporary files).
    """
    folder = Path(os.environ.get("TRIO_MCP_NODE_CACHE", Path(tempfile.gettempdir()) / "trio_mcp_node"))
    with installed(folder, PACKAGES, INSTALL_TIMEOUT):
        for script in HERE.glob("typescript_*.mjs"):
            shutil.copy(script, folder)
    return folder


@pytest.fixture(scope="session")
def host_programs() -> Path:
    """The `node_modules` with the hosts, which are installed once, into the folder that `TRIO_MCP_HOSTS_CACHE` names."""
    folder = Path(os.environ.get("TRIO_MCP_HOSTS_CACHE", Path(tempfile.gettempdir()) / "trio_mcp_hosts"))
    with installed(folder, HOSTS, HOSTS_TIMEOUT):
        return folder / "node_modules"


@contextmanager
def installed(folder: Path, packages: Mapping[str, str], seconds: float) -> Iterator[None]:
    """Install packages of npm into a folder, unless they are there, and keep it locked in the block."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: {', '.join(packages)} are not tried")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all((folder / "node_modules" / package / "package.json").exists() for package in packages):
            install(folder, packages, seconds)
        yield


def install(folder: Path, packages: Mapping[str, str], seconds: float) -> None:
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--fetch-retries=0"]
    command += ["--prefix", str(folder), *(f"{package}@{major}" for package, major in packages.items())]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=seconds, cwd=folder)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        pytest.skip(f"npm could not install {', '.join(packages)}: {said[0] if said else error}")
