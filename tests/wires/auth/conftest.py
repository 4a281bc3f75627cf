"""The library of the provider, from npm."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

INSTALL_TIMEOUT = 120.0


@pytest.fixture(scope="session")
def modules() -> Path:
    """The folder with the provider's library, which is installed once, into what `TRIO_MCP_OIDC_CACHE` names."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: install Node.js 20 or later with npm to run the OpenID provider")
    folder = Path(os.environ.get("TRIO_MCP_OIDC_CACHE", Path(tempfile.gettempdir()) / "trio_mcp_oidc"))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # Written at the end: an install that broke off has none.
        if not (folder / "complete").exists():
            install(folder)
            (folder / "complete").touch()
    return folder


def install(folder: Path) -> None:
    shutil.copy(Path(__file__).parent / "oidc" / "package.json", folder)
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", "--fetch-retries=0"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_TIMEOUT, cwd=folder)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        pytest.skip(f"npm could not install the provider: {said[0] if said else error}")
