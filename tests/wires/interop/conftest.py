"""Servers that the tests of this folder share, and the TypeScript SDK."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from processes import HERE, Target, command_of, over_http

PACKAGES = ("@modelcontextprotocol/client", "@modelcontextprotocol/server")
INSTALL_TIMEOUT = 60.0


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
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: the TypeScript SDK is not tried")
    folder = Path(os.environ.get("TRIO_MCP_NODE_CACHE", Path(tempfile.gettempdir()) / "trio_mcp_node"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all((folder / "node_modules" / package / "package.json").exists() for package in PACKAGES):
            install(folder)
        for script in HERE.glob("typescript_*.mjs"):
            shutil.copy(script, folder)
    return folder


def install(folder: Path) -> None:
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--fetch-retries=0"]
    command += ["--prefix", str(folder), *(f"{package}@2" for package in PACKAGES)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT, cwd=folder)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        pytest.skip(f"npm could not install {', '.join(PACKAGES)}: {said[0] if said else error}")
