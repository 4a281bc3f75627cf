"""The reference has every public name, and the pages and examples use no others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import test_exports
from public_names import documented, explained_in, names_of, packages, page_of

ROOT = Path(__file__).parents[1]

INTERNAL = re.compile(
    r"trio_mcp\.(bridge|protocol|cli|mcp_json|model_formats|relay|runtime|scripts|telemetry)(\..*)?|trio_mcp_transports\.(asgi|httpx|stdio)(\..*)?"
    r"|trio_mcp\.(client|server|session|testing\.mock)\..*|trio_mcp\.testing\.(mock|interruptions|contract\.(groups|store))|trio_mcp_transports\.http\..*"
)
"""Packages whose names are for our other packages. What is public in them is listed by a package above."""

FOR_EXPERTS = {
    "trio_mcp.session.pump": "docs/internals/contract.md, for authors of transports",
    "trio_mcp_transports.stdio": "docs/internals/contract.md, for authors of transports",
}
"""Modules that a page uses although they are in no table, and why."""


def exporting() -> list[str]:
    return [name for name in test_exports.packages() if getattr(import_module(name), "__all__", [])]


def test_a_package_with_public_names_is_in_the_reference_or_internal() -> None:
    assert [name for name in exporting() if bool(INTERNAL.fullmatch(name)) == (name in packages())] == []


@pytest.mark.parametrize("package", packages())
def test_a_public_name_is_documented_by_the_first_package_that_has_it_and_by_no_other(package: str) -> None:
    pages = list(documented().values())
    for name in names_of(package):
        value: object = getattr(import_module(package), name)
        owners = [each.package for names in pages for each in names if each.name == name and each.value is value]
        assert len(owners) == 1, f"{package}.{name}: {owners}"
        assert packages().index(owners[0]) <= packages().index(package)


@pytest.mark.parametrize("package", packages())
def test_the_entry_of_a_public_name_leads_to_a_page(package: str) -> None:
    assert page_of(package)
    for each in documented()[package]:
        assert explained_in(each), each.path


def imports(code: str) -> Iterator[tuple[str, str]]:
    """Yield each of our modules that a program imports from, with the name."""
    for node in ast.walk(ast.parse(code)):
        if (
            isinstance(node, ast.ImportFrom)
            and node.level == 0
            and (node.module or "").split(".")[0].startswith("trio_mcp")
        ):
            yield from ((node.module or "", alias.name) for alias in node.names)


def programs() -> Iterator[Path]:
    yield from sorted((ROOT / "examples").rglob("*.py"))
    yield from sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def test_examples_and_pages_import_public_names_only() -> None:
    for program in programs():
        text = program.read_text("utf-8")
        pages = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        blocks = [text] if program.suffix == ".py" else pages
        used = [each for block in blocks for each in imports(block) if each[0] not in FOR_EXPERTS]
        assert [f"{module}.{name}" for module, name in used if not is_public(module, name)] == [], program


def is_public(module: str, name: str) -> bool:
    return f"{module}.{name}" in packages() or (module in packages() and name in names_of(module))
