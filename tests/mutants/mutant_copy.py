"""A copy of a source tree with a separate Python environment, in which every import finds the copy.

`PYTHONPATH` alone is not enough: the stdio client starts its servers with a few environment variables only, and the environment
that runs this has an editable install of the very tree that is copied. So the copy gets a virtual environment whose path names
the copy first and the installed dependencies after it; `.pth` files of those, with the editable install among them, are not
read. Whatever a test starts with `sys.executable`, or as `trio-mcp`, uses it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mutant_table import ROOT, MutantError

SCRIPT = """#!{python}
import sys
from {module} import {name}
sys.exit({name}())
"""


@dataclass(frozen=True)
class Copy:
    """A copied tree at `root`, and the interpreter that imports it; both vanish with their temporary folder."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "tree"

    @property
    def python(self) -> Path:
        return self.folder / "env" / "bin" / "python"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables for tests."""
        own = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COVERAGE", "PYTEST"))
        }
        own.setdefault("MCP_SPEC_DIR", str(ROOT.parent / "shared" / "spec"))  # which tests look for beside their tree
        return own | {"PATH": f"{self.python.parent}{os.pathsep}{own.get('PATH', os.defpath)}"}

    def check_imports(self, file: str) -> None:
        """Raise `MutantError` unless a child process without any environment variables imports `file` from this copy."""
        parts = Path(file).with_suffix("").parts
        module = ".".join(parts[1:] if parts[0] == "transports" else parts).removesuffix(".__init__")
        code = f"import {module} as module; print(module.__file__)"
        found = subprocess.run(
            [self.python, "-c", code], cwd="/", env={}, capture_output=True, text=True, timeout=60, check=False
        )
        if Path(found.stdout.strip() or "/nowhere") != self.root / file:
            raise MutantError(f"{module} was imported from {found.stdout.strip()!r}, not from the copy: {found.stderr}")


@contextmanager
def copied() -> Iterator[Copy]:
    """Make a copy for the length of the block."""
    with TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as folder:
        copy = Copy(Path(folder).resolve())
        copy_files(copy.root)
        make_environment(copy)
        yield copy


def copy_files(target: Path) -> None:
    """Copy what git would commit, with the changes that are not committed yet."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def make_environment(copy: Copy) -> None:
    env = copy.folder / "env"
    venv.create(env, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(env), "platbase": str(env)}))
    installed = sysconfig.get_path("purelib")
    paths = [copy.root, copy.root / "transports", installed]
    packages.joinpath("mutant.pth").write_text("".join(f"{path}\n" for path in paths))
    describe(copy, packages)


def describe(copy: Copy, packages: Path) -> None:
    """Announce the entry points of the copy, which may differ from those of the installed tree, and write its scripts."""
    project = tomllib.loads((copy.root / "pyproject.toml").read_text())["project"]
    info = packages / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    sections = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in entries.items())
        for group, entries in groups.items()
    ]
    info.joinpath("entry_points.txt").write_text("\n".join(sections))
    for script, target in project["scripts"].items():
        module, _, name = target.partition(":")
        path = copy.python.parent / script
        path.write_text(SCRIPT.format(python=copy.python, module=module, name=name))
        path.chmod(0o755)


assert sys.prefix != sys.base_prefix, "run it with the environment that `make` sets up"
