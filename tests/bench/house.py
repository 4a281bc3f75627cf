"""Compare the size of the house with `house.toml`: `make lint` fails where something has grown; `--lower` writes what has shrunk.

Counted are lines of code and files of each room (a folder with Python files, without the folders in it), public names of each
package of docs/reference.md, and exceptions: imports that a contract of import-linter ignores, imports that are deferred, and
internal modules that tests of another room import; and, with CPython 3.11, the calls and hops of the roads of `hops.py`.

What may grow is written in the same commit, with a reason:

    [[raised]]
    what = "code: trio_mcp/server/tools"
    by = 40
    why = "a tool may be renamed by its mount"
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "docs" / "site")]

from public_names import names_of, packages  # noqa: E402
from size import ROOT, measure  # noqa: E402

TESTS = ROOT / "tests"
FILE = Path(__file__).with_name("house.toml")
DEFERRED = re.compile(r"# noqa: PLC0415|\bimport_module\(")
COUNTS_ROADS = sys.implementation.name == "cpython" and sys.version_info[:2] == (3, 11)
"""Other versions inline other calls."""
TOLERANCE = 3
"""How many bytes a read brings, and which of two tasks goes on first, moves the roads a little."""
ROOMS = {"contract": "trio_mcp.testing", "transports": "trio_mcp_transports"}
"""What tests in these folders are about; others are about the package of their name."""

Counts = dict[str, dict[str, int]]
"""What was counted, by table of the file."""


def product() -> list[Path]:
    """Return the files of the product."""
    return sorted(
        file
        for folder in ("trio_mcp", "transports")
        for file in ROOT.joinpath(folder).rglob("*.py")
        if "testing" not in file.parts
    )


def imported(source: str) -> Iterator[str]:
    """Yield the modules of the product that a file imports, each as often as a name comes from it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [module_of(f"{node.module}.{alias.name}") or f"{node.module}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.partition(".")[0] in ("trio_mcp", "trio_mcp_transports"))


def module_of(name: str) -> str | None:
    """Return the name if a module of the product has it."""
    path = "/".join(name.split("."))
    files = (f"{root}{path}{end}" for root in ("", "transports/") for end in (".py", "/__init__.py"))
    return name if any(ROOT.joinpath(file).is_file() for file in files) else None


def foreign(file: Path, public: list[str]) -> list[str]:
    """Return the internal modules of other rooms that a file of the tests imports, each once."""
    folders = [part for part in file.relative_to(TESTS).parts[:-1] if part != "wires"]
    room = ROOMS.get(folders[0], f"trio_mcp.{folders[0]}") if folders else ""
    return sorted(
        name
        for name in set(imported(file.read_text(encoding="utf-8")))
        if name not in public and not (room and f"{name}.".startswith(f"{room}."))
    )


def count() -> Counts:
    """Count the house as it is."""
    code, files, deferred = Counter[str](), Counter[str](), 0
    for file in product():
        room = file.parent.relative_to(ROOT).as_posix()
        code[room] += measure(file)["code"]
        files[room] += 1
        deferred += len(DEFERRED.findall(file.read_text(encoding="utf-8")))
    contracts = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    ignored = sum(len(contract.get("ignore_imports", ())) for contract in contracts["contracts"])
    public = packages()
    imports = sum(len(foreign(file, public)) for file in TESTS.rglob("*.py"))
    return {
        "code": {"all": code.total(), **code},
        "files": {"all": files.total(), **files},
        "public names": {package: len(names_of(package)) for package in public},
        "exceptions": {
            "deferred imports": deferred,
            "ignored imports": ignored,
            "internal modules imported by tests of other rooms": imports,
        },
    }


def roads() -> Counts:
    """Count how far a request travels. Raises `CalledProcessError` if a conversation fails, which says why on stderr."""
    command = [sys.executable, Path(__file__).with_name("hops.py"), "--roads"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=180, check=True).stdout)


def limits() -> Counts:
    """Return what the file allows. Raises `ValueError` if something is raised without a reason or is not there."""
    tables = tomllib.loads(FILE.read_text(encoding="utf-8"))
    for raised in tables.pop("raised", ()):
        table, _, name = raised["what"].partition(": ")
        if not raised.get("why", "").strip():
            raise ValueError(f"{FILE.name}: say why {raised['what']} may grow")
        if table not in tables or raised["by"] <= 0:
            raise ValueError(f"{FILE.name}: nothing is called {raised['what']}, or it is raised by nothing")
        tables[table][name] = tables[table].get(name, 0) + raised["by"]
    return tables


def grown(counted: Counts, allowed: Counts, tolerance: int = 0) -> list[str]:
    """Return a line for each count over its limit; what the file does not name has the limit zero."""
    return [
        f"{table}: {name}: {number} instead of {allowed.get(table, {}).get(name, 0)}"
        for table, numbers in counted.items()
        for name, number in numbers.items()
        if number > allowed.get(table, {}).get(name, 0) + tolerance
    ]


def text_of(tables: Mapping[str, Mapping[str, int]]) -> str:
    """Return the file with these limits."""
    head = FILE.read_text(encoding="utf-8").split("\n\n", 1)[0]
    parts = [
        f"[{table if table.isidentifier() else repr(table)}]\n"
        + "".join(f'"{name}" = {number}\n' for name, number in sorted(numbers.items()))
        for table, numbers in tables.items()
    ]
    return "\n\n".join([head, "\n".join(part.replace("'", '"') for part in parts)])


def main() -> None:
    counted, allowed = count(), limits()
    lines = grown(counted, allowed)
    if COUNTS_ROADS:
        lines += grown(roads(), allowed, TOLERANCE)
    if lines:
        print(*lines, f"Make it smaller, or say in {FILE.relative_to(ROOT)} why it may grow.", sep="\n")
        sys.exit(1)
    if "--lower" in sys.argv:
        FILE.write_text(text_of({**allowed, **counted}), encoding="utf-8")
    code, files = counted["code"]["all"], counted["files"]["all"]
    print(f"The product has {code:,} lines of code in {files} files, and nothing has grown.")


if __name__ == "__main__":
    main()
