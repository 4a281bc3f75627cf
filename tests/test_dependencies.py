"""Every package that the project imports is declared in `pyproject.toml`, and every declared one is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = {"trio_mcp", "trio_mcp_transports"}
PLUGINS = {"pytest_plugin.py": "pytest"}
"""Modules that only the program loads whose plugin they are; it is no dependency."""
SOURCES = [ROOT / "trio_mcp", ROOT / "transports" / "trio_mcp_transports"]


def imported(file: Path) -> Iterator[str]:
    """The top-level packages that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def normalized(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.match(r"[\w.-]+", requirement) for requirement in project["dependencies"]]
    return {normalized(name[0]) for name in names if name}


def used() -> dict[str, str]:
    """A file of ours by the distribution that it imports."""
    providers = packages_distributions()
    found: dict[str, str] = {}
    for source in SOURCES:
        for file in source.rglob("*.py"):
            for package in set(imported(file)) - sys.stdlib_module_names - OURS - {PLUGINS.get(file.name)}:
                for distribution in set(providers.get(package, [package])):
                    found[normalized(distribution)] = f"{package} in {file.relative_to(ROOT)}"
    return found


def test_every_package_that_is_imported_is_declared() -> None:
    undeclared = {name: where for name, where in used().items() if name not in declared()}
    assert undeclared == {}


def test_every_package_that_is_declared_is_imported() -> None:
    assert declared() - set(used()) == set()
