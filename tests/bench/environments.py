"""The environments that targets run in; each is made once, under `build/bench`."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from .paths import BUILD, ROOT, SERVERS
from .processes import log_file, output_of


class Unavailable(Exception):
    """A program that the environment needs is not on this machine."""


@dataclass(frozen=True)
class PythonEnvironment:
    """A virtual environment of the Python that runs the benchmark.

    Attributes:
        requirements: What pip installs.
        depends_on: A file, any change of which rebuilds the environment.
    """

    name: str
    requirements: tuple[str, ...]
    depends_on: Path | None = None

    async def prepare(self) -> Path:
        """Make the environment if it is missing or old; returns its interpreter."""
        folder = BUILD / self.name
        interpreter = folder / "bin" / "python"
        stamp = folder / "complete"
        wanted = "\n".join([sys.version, *self.requirements, self.depends_on.read_text() if self.depends_on else ""])
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
            log = log_file(f"install-{self.name}")
            await output_of([sys.executable, "-m", "venv", "--clear", folder], log)
            pip: list[str | Path] = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            await output_of([*pip, *self.requirements], log)
            stamp.write_text(wanted, encoding="utf-8")
        return interpreter

    @property
    def folder(self) -> Path:
        """The working directory of what runs in the environment: servers are started as `-m bench.servers.NAME`."""
        return ROOT / "tests"


@dataclass(frozen=True)
class NodeEnvironment:
    """A folder with npm packages, and with our scripts for node, which looks for packages beside a script."""

    name: str
    packages: tuple[str, ...]

    async def prepare(self) -> Path:
        """Install the packages if they are missing or others; returns the path of node.

        Raises `Unavailable` if node or npm is not on PATH.
        """
        node, npm = shutil.which("node"), shutil.which("npm")
        if node is None or npm is None:
            raise Unavailable("node and npm are not on PATH")
        self.folder.mkdir(parents=True, exist_ok=True)
        stamp = self.folder / "complete"
        wanted = "\n".join(self.packages)
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
            command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
            command += ["--prefix", str(self.folder), *self.packages]
            await output_of(command, log_file(f"install-{self.name}"), folder=self.folder)
            stamp.write_text(wanted, encoding="utf-8")
        for script in SERVERS.glob("*.mjs"):
            shutil.copy(script, self.folder)
        return Path(node)

    @property
    def folder(self) -> Path:
        """The working directory of what runs in the environment."""
        return BUILD / self.name
