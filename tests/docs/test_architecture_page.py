"""The page on architecture names only modules that exist, and what the code says on it is as in the code."""

from __future__ import annotations

import re
from pathlib import Path

import modules
import pytest
from floors import PAGES, floors, with_table
from serving import ROOT

from tests.test_eras import MAY_DECIDE

PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
NAME = re.compile(r"`([a-z_0-9/]+(?:\.py|/))`")


def is_there(name: str) -> bool:
    """Return whether a file or a folder has this path, below the root or below any folder of the packages and tests."""
    trees = (ROOT / "trio_mcp", ROOT / "transports", ROOT / "tests")
    return (ROOT / name).exists() or any(next(tree.glob(f"**/{name.rstrip('/')}"), None) is not None for tree in trees)


def test_every_module_that_the_page_names_exists() -> None:
    names = NAME.findall(PAGE)
    assert names
    assert [name for name in names if not is_there(name)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_floors_are_those_that_the_linter_checks(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_table(text) == text, "write the pages: python docs/site/floors.py"


def test_every_package_is_on_one_floor() -> None:
    found = {f"trio_mcp.{path.stem}" for path in (ROOT / "trio_mcp").iterdir() if path.suffix == ".py" or path.is_dir()}
    names = [name for floor in floors() for name in floor]
    apart = {"trio_mcp.__init__", "trio_mcp.__main__", "trio_mcp.__pycache__"}
    assert sorted(names) == sorted({*found - apart, "trio_mcp_transports"})


def test_the_page_of_modules_has_each_with_its_purpose() -> None:
    assert modules.PAGE.read_text(encoding="utf-8") == modules.page(), "write the page: python docs/site/modules.py"


def test_the_page_names_every_module_that_decides_by_era() -> None:
    table = PAGE.split("## Where eras differ\n", 1)[1].split("\n## ", 1)[0]
    files = [f"{module.replace('.', '/')}.py" for module in MAY_DECIDE]
    named = NAME.findall(table)
    assert [file for file in files if not any(file.endswith(f"/{name}") for name in named)] == []
