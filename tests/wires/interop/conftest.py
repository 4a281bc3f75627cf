"""Servers that the tests of this folder share, and the TypeScript SDK."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import tomllib
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

import pytest
from processes import HERE, Target, command_of, over_http
from serving import ROOT

PACKAGES = {"@modelcontextprotocol/client": "2", "@modelcontextprotocol/server": "2", "@modelcontextprotocol/sdk": "1"}
"""The TypeScript SDK, with the first major version beside the second: it has the tasks of 2025-11-25."""

HOSTS = {"@anthropic-ai/claude-code": "2", "@google/gemini-cli": "0"}
"""Hosts that list their servers without a login."""

FASTMCP = ("fastmcp>=4", "fastmcp-tasks>=4")
FRAMEWORKS = ("pydantic-ai-slim[mcp]>=2.66", "langchain>=1.5", "fastmcp>=4.0.11,<5", "openai-agents>=0.24")
INSTALL_TIMEOUT = 60.0
PIP_TIMEOUT = 240.0
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


@pytest.fixture(scope="session")
def fastmcp_python() -> str:
    """The interpreter of an environment with FastMCP and its tasks, which does not fit into that of the tests.

    It is made once, in the folder that `TRIO_MCP_FASTMCP_CACHE` names (else one for temporary files).
    """
    return python_with("fastmcp", FASTMCP)


@pytest.fixture(scope="session")
def frameworks_python() -> str:
    """The same with frameworks for agents and what trio_mcp needs, in the folder that `TRIO_MCP_FRAMEWORKS_CACHE` names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return python_with("frameworks", [*FRAMEWORKS, *project["dependencies"]])


def python_with(name: str, packages: Sequence[str]) -> str:
    """Return the interpreter of an environment that is made once, with these packages."""
    default = Path(tempfile.gettempdir()) / f"trio_mcp_{name}"
    folder = Path(os.environ.get(f"TRIO_MCP_{name.upper()}_CACHE", default))
    folder.mkdir(parents=True, exist_ok=True)
    python = folder / "venv" / "bin" / "python"
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Written at the end: an install that broke off has none.
        complete = folder / "complete"
        if not complete.exists() or complete.read_text() != "\n".join(packages):
            complete.unlink(missing_ok=True)
            make_environment(python.parents[1], python, packages)
            complete.write_text("\n".join(packages))
    return str(python)


def make_environment(folder: Path, python: Path, packages: Sequence[str]) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries=0", *packages]
    try:
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run(pip, check=True, capture_output=True, timeout=PIP_TIMEOUT)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        pytest.skip(f"pip could not install {', '.join(packages)}: {said[-1] if said else error}")
