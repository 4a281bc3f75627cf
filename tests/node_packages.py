"""Packages of npm that tests need, installed once into a folder."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest


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
