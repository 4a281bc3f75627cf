"""The pinned builds of the official conformance suite, and the Node they need, installed through npm and kept in a cache folder.

Both builds import `fs.globSync`, which Node has since 22. Where `node` is older or missing, npm brings one.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STABLE = "0.1.16"
ALPHA = "0.2.0-alpha.12"
"""The builds that are run. A newer one is taken on purpose: it may ask for more, and then the table changes."""

PACKAGE = "@modelcontextprotocol/conformance"
NODE_MAJOR = 22
INSTALL_TIMEOUT = 300.0
LIST_TIMEOUT = 60.0


class SetupError(Exception):
    """The suite cannot be run here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One installed build."""

    version: str
    node: Path
    entry: Path

    def command(self, *arguments: str) -> list[str]:
        return [str(self.node), str(self.entry), *arguments]

    def listed(self, *arguments: str) -> list[str]:
        """The lines in which the suite lists scenarios."""
        done = subprocess.run(
            self.command("list", *arguments), capture_output=True, text=True, timeout=LIST_TIMEOUT, check=False
        )
        if done.returncode:
            raise SetupError(f"the suite {self.version} cannot list its scenarios: {last_line(done.stderr)}")
        return done.stdout.splitlines()


def default_cache() -> Path:
    """Where what npm brings is kept: `XDG_CACHE_HOME`, or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trio_mcp" / "conformance"


def install_suites(cache: Path, versions: Sequence[str]) -> dict[str, Suite]:
    """Install what is not there yet, and return the builds by version.

    Raises:
        SetupError: npm is missing, or could not install.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with alone_in(cache):
        node = find_node(cache)
        return {version: Suite(version, node, install_suite(cache, version)) for version in versions}


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Two runs that start at once must not install over each other."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def find_node(cache: Path) -> Path:
    """A `node` that is new enough: the one on PATH, or one from npm."""
    found = shutil.which("node")
    if found is not None and node_major(Path(found)) >= NODE_MAJOR:
        return Path(found)
    node = installed(cache / f"node-{NODE_MAJOR}", f"node@{NODE_MAJOR}") / ".bin" / "node"
    if node_major(node) < NODE_MAJOR:
        raise SetupError(f"{node} does not run; Node {NODE_MAJOR} or newer is needed")
    return node


def node_major(node: Path) -> int:
    """The first number of its version; 0 when it does not start."""
    try:
        done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=LIST_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return 0
    major = done.stdout.strip().removeprefix("v").partition(".")[0]
    return int(major) if major.isdecimal() else 0


def install_suite(cache: Path, version: str) -> Path:
    return installed(cache / f"suite-{version}", f"{PACKAGE}@{version}") / PACKAGE / "dist" / "index.js"


def installed(folder: Path, package: str) -> Path:
    """The `node_modules` with a package in it. A folder under its final name is complete: an install that broke off has none."""
    modules = folder / "node_modules"
    if not modules.is_dir():
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".installing-") as scratch:
            npm_install(Path(scratch), package)
            shutil.rmtree(folder, ignore_errors=True)
            (Path(scratch)).rename(folder)
            Path(scratch).mkdir()  # what the context manager removes
    return modules


def npm_install(folder: Path, package: str) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise SetupError(f"npm was not found on PATH; it is needed to install {package}")
    (folder / "package.json").write_text('{"private": true}\n')
    command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", package]
    try:
        subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_TIMEOUT, check=True)
    except subprocess.CalledProcessError as error:
        raise SetupError(f"npm could not install {package}: {last_line(error.stderr)}") from None
    except subprocess.TimeoutExpired:
        raise SetupError(f"npm did not install {package} within {INSTALL_TIMEOUT:g} seconds") from None


def last_line(text: str) -> str:
    """What a program complained of, in one line."""
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "ERR" in line or "rror" in line), lines[-1] if lines else "it said nothing")
