"""The old names of the page are gone, and the new ones are there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

import pytest
from pages import Page
from public_names import names_of

from trio_mcp import Server

PAGE = Page("renamed").text
IMPORT = re.compile(
    r"^\| `from (?P<old>[\w.]+) import (?P<names>[^|]*) \| `from (?P<new>[\w.]+) import \.\.\.` \|", re.MULTILINE
)
PATH = re.compile(r"^\| (?P<paths>`trio_mcp\.[^|]*) \| `(?P<package>[\w.]+)` \|", re.MULTILINE)
METHOD = re.compile(r"^\| `server\.(\w+)\(.*\)` \| `server\.(\w+)\(.*\)` \|", re.MULTILINE)


def moved() -> Iterator[tuple[str, str, str]]:
    for row in IMPORT.finditer(PAGE):
        yield from ((row["old"], name, row["new"]) for name in re.findall(r"\w+", row["names"]))


@pytest.mark.parametrize(("old", "name", "new"), [*moved()])
def test_a_name_that_moved_is_public_at_its_new_place_only(old: str, name: str, new: str) -> None:
    assert name in names_of(new)
    assert hasattr(import_module(new), name)
    if old == "trio_mcp":
        with pytest.raises(ImportError, match=re.escape(new)):
            exec(f"from {old} import {name}")


def test_the_paths_that_still_work_have_their_names_in_the_package_of_the_reference() -> None:
    rows = [(path, row["package"]) for row in PATH.finditer(PAGE) for path in re.findall(r"[\w.]+", row["paths"])]
    assert len(rows) > 3
    for path, package in rows:
        assert {name for name in names_of(path) if not name.islower() or "_" in name} & {*names_of(package)}


def test_methods_that_were_renamed_are_gone() -> None:
    rows = METHOD.findall(PAGE)
    assert len(rows) == 4
    for old, new in rows:
        assert not hasattr(Server, old)
        assert hasattr(Server, new)
