"""The licence of every package that users install with trio-mcp and its extras, as `pip-licenses` reads them from the metadata.

Without an argument it installs this checkout with all extras in `build/release`, and writes the table of the page. With the path
of a Python it checks the packages of that environment.

exit status: 1 if a licence is not allowed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "internals" / "releasing.md"
ENVIRONMENT: Final = ROOT / "build" / "release"
FOR_CONTRIBUTORS: Final = {"bench", "dev", "docs"}
"""Extras that no user installs."""
BEGIN, END = "<!-- licences, by tests/packages/licences.py -->", "<!-- end of licences -->"

ALLOWED: Final = {
    "Apache Software License",
    "Apache-2.0",
    "BSD License",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "MIT",
    "MIT License",
    "MIT-0",
    "PSF-2.0",
    "Python Software Foundation License",
    "Unlicense",
}
"""Licences that ask for no more than their notice."""
ALSO: Final = {"psycopg": {"LGPL-3.0-only"}, "psycopg-binary": {"LGPL-3.0-only"}}
"""What is allowed of one package alone: a program may use a library under the LGPL without being under it."""
OURS: Final = "trio-mcp"


class Package(NamedTuple):
    """A package that is installed, and what its metadata says of its licence."""

    name: str
    version: str
    licence: str

    @property
    def is_allowed(self) -> bool:
        parts = {each.strip(" ()") for each in re.split(r";|\bOR\b|\bAND\b", self.licence)}
        return parts <= ALLOWED | ALSO.get(self.name, set())


def extras() -> list[str]:
    """Return the extras that are for users."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted(set(project["optional-dependencies"]) - FOR_CONTRIBUTORS)


def packages_of(python: str) -> list[Package]:
    """Return the packages of an environment but ours, pip and setuptools, by their names."""
    command = [sys.executable, "-m", "piplicenses", "--python", python, "--from", "mixed", "--format", "json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    packages = [Package(each["Name"], each["Version"], each["License"]) for each in found]
    return sorted((each for each in packages if each.name != OURS), key=lambda each: each.name.lower())


def make_environment() -> str:
    """Install this checkout with all extras of users, newly; return the Python there."""
    python = str(ENVIRONMENT / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"{ROOT}[{','.join(extras())}]"], check=True)
    return python


def table(packages: Sequence[Package]) -> str:
    rows = [f"| {each.name} | {each.version} | {each.licence} |" for each in packages]
    return "\n".join([BEGIN, "", "| package | version | licence |", "|---|---|---|", *rows, "", END])


def write_page(packages: Sequence[Package]) -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + table(packages) + after, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    packages = packages_of(arguments[0] if arguments else make_environment())
    if not arguments:
        write_page(packages)
    refused = [each for each in packages if not each.is_allowed]
    for each in refused:
        print(f"{each.name} {each.version} has a licence that is not allowed: {each.licence}", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
