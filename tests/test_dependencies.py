"""Every package that the project imports is declared in `pyproject.toml`, and every declared one is imported."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

from tests.packages import licences

ROOT = Path(__file__).parents[1]
STANDARD = sys.stdlib_module_names | {"annotationlib"}
"""Modules of Python itself; `annotationlib` came with 3.14."""
OURS = {"trio_mcp", "trio_mcp_transports"}
PLUGINS = {"pytest_plugin.py": "pytest"}
"""Modules that only the program loads whose plugin they are; it is no dependency."""
SOURCES = [ROOT / "trio_mcp", ROOT / "transports" / "trio_mcp_transports"]
EXTRAS = {
    "anthropic": "trio_mcp/providers/anthropic_client.py",
    "openai": "trio_mcp/providers/openai_client.py",
    "yaml": "trio_mcp/openapi/documents.py",
    "goose": "trio_mcp/cli/hosts/yaml_files.py",
    "keyring": "trio_mcp/auth/client/keyring_tokens.py",
    "postgres": "trio_mcp/stores/postgres_connection.py",
    "redis": "trio_mcp/stores/redis_connection.py",
    "otel": "trio_mcp/telemetry/instruments.py trio_mcp/telemetry/spans.py",
    "prometheus": "trio_mcp/telemetry/prometheus.py",
}
"""The only file that may import what an extra installs, or the two."""
NAMESPACES = {"opentelemetry": ["opentelemetry-api"]}
"""Packages of several distributions, of which we import one."""
FOR_TYPE_CHECKERS = "trio_mcp/model_formats/api_types.py"
"""Names the types of all extras; it loads nothing when it is run."""


def imported(file: Path) -> Iterator[str]:
    """The top-level packages that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def normalized(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def project() -> dict[str, Any]:
    tables: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return tables


def distributions(requirements: list[str]) -> set[str]:
    names = [re.match(r"[\w.-]+", requirement) for requirement in requirements]
    return {normalized(name[0]) for name in names if name}


def declared() -> set[str]:
    return distributions(project()["dependencies"])


def optional() -> dict[str, str]:
    """The file that may import it by each distribution that an extra installs."""
    extras = project()["optional-dependencies"]
    return {name: file for extra, file in EXTRAS.items() for name in distributions(extras[extra])}


@cache
def used() -> dict[str, dict[str, str]]:
    """The files of ours, with the packages that they import, by the distributions of these."""
    providers = packages_distributions()
    found: dict[str, dict[str, str]] = {}
    for source in SOURCES:
        for file in source.rglob("*.py"):
            for package in set(imported(file)) - STANDARD - OURS - {PLUGINS.get(file.name)}:
                for distribution in set(NAMESPACES.get(package, providers.get(package, [package]))):
                    found.setdefault(normalized(distribution), {})[str(file.relative_to(ROOT))] = package
    return found


def test_every_package_that_is_imported_is_declared() -> None:
    undeclared = {name: files for name, files in used().items() if name not in declared() | set(optional())}
    assert undeclared == {}


def test_every_package_that_is_declared_is_imported() -> None:
    assert (declared() | set(optional())) - set(used()) == set()


def test_an_extra_is_imported_in_one_file_and_installed_for_the_tests() -> None:
    assert set(project()["optional-dependencies"]) == {*EXTRAS, *licences.FOR_CONTRIBUTORS}
    files = {name: set(used()[name]) - {FOR_TYPE_CHECKERS} for name in optional()}
    assert files == {name: set(file.split()) for name, file in optional().items()}
    assert set(optional()) & declared() == set()
    extras = project()["optional-dependencies"]
    assert {requirement for extra in EXTRAS for requirement in extras[extra]} <= set(extras["dev"])


@pytest.mark.parametrize("licence", ["MIT", "Apache-2.0 OR BSD-3-Clause", "Apache Software License; MIT License"])
def test_a_package_whose_licences_are_all_allowed_is(licence: str) -> None:
    assert licences.Package("some", "1", licence).is_allowed


@pytest.mark.parametrize(
    "licence", ["GPL-3.0-only", "MIT AND GPL-3.0-only", "MIT; Other/Proprietary License", "UNKNOWN", ""]
)
def test_a_package_with_another_licence_or_none_is_not_allowed(licence: str) -> None:
    assert not licences.Package("some", "1", licence).is_allowed


def test_what_is_allowed_of_one_package_is_not_of_others() -> None:
    assert licences.Package("psycopg", "3", "LGPL-3.0-only").is_allowed
    assert not licences.Package("some", "1", "LGPL-3.0-only").is_allowed


def test_the_page_of_releases_has_the_licence_of_every_package_that_is_declared() -> None:
    _, _, rest = licences.PAGE.read_text(encoding="utf-8").partition(licences.BEGIN)
    rows = re.findall(r"^\| (\S+) \| (\d\S*) \| (.+) \|$", rest.partition(licences.END)[0], re.MULTILINE)
    packages = [licences.Package(normalized(name), version, licence) for name, version, licence in rows]
    assert declared() | set(optional()) <= {package.name for package in packages}
    assert [package for package in packages if not package.is_allowed] == []
