"""One server of each kind for the cases of the contract, and environments with clients of others."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
import tomllib
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from node_packages import installed
from serving import ROOT
from store_servers import POSTGRES_VARIABLE, REDIS_VARIABLE, postgres_server, redis_server

PACKAGES = {"@modelcontextprotocol/client": "2", "@modelcontextprotocol/server": "2", "@modelcontextprotocol/sdk": "1"}
"""The TypeScript SDK, with the first major version beside the second: it has the tasks of 2025-11-25."""
INSTALL_TIMEOUT = 60.0

FASTMCP = ("fastmcp>=4", "fastmcp-tasks>=4")
FRAMEWORKS = ("pydantic-ai-slim[mcp]>=2.66", "langchain>=1.5", "fastmcp>=4.0.11,<5", "openai-agents>=0.24")
PIP_TIMEOUT = 240.0


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with redis_server() as server, pytest.MonkeyPatch.context() as patch:
        # For the processes that a case starts, too.
        patch.setitem(os.environ, REDIS_VARIABLE, server.url)
        yield server.url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, POSTGRES_VARIABLE, server.url)
        yield server.url


@pytest.fixture(scope="session")
def node_folder() -> Path:
    """A folder in which node finds the TypeScript SDK, with our scripts.

    The SDK is installed once, into the folder that `TRIO_MCP_NODE_CACHE` names (else one for temporary files).
    """
    folder = Path(os.environ.get("TRIO_MCP_NODE_CACHE", Path(tempfile.gettempdir()) / "trio_mcp_node"))
    with installed(folder, PACKAGES, INSTALL_TIMEOUT):
        for script in Path(__file__).parent.glob("*/typescript_*.mjs"):
            shutil.copy(script, folder)
    return folder


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
