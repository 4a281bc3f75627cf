"""The table of mutants fits the tree; what kills them is seen by `make mutants`."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from mutant_table import (
    AREAS,
    PACKAGES,
    ROOT,
    TABLE,
    MutantError,
    Place,
    apply,
    check,
    moved,
    read_mutant,
    read_table,
    update,
)

SOURCE = """def first(n):
    if n > 1:
        return n
    return 0


def second(n):
    if n > 1:
        return 1
    return 0
"""


def test_every_mutant_applies() -> None:
    for mutant in read_table():
        check(ROOT, mutant.after)


def test_there_are_forty_mutants_of_four_areas() -> None:
    areas = Counter(mutant.area for mutant in read_table())
    assert areas.total() == 40
    assert all(areas[area] >= 8 for area in AREAS)


def test_a_mutant_changes_one_line_and_keeps_its_indentation(tmp_path: Path) -> None:
    tmp_path.joinpath("a.py").write_text(SOURCE)
    assert apply(tmp_path, Place("a.py", "if n > 1:", "if n >= 1:", "second")) == 8
    changed = zip(SOURCE.splitlines(), tmp_path.joinpath("a.py").read_text().splitlines(), strict=True)
    assert [pair for pair in changed if pair[0] != pair[1]] == [("    if n > 1:", "    if n >= 1:")]


@pytest.mark.parametrize(
    ("place", "named"),
    [
        (Place("a.py", "if n > 1:", "if n >= 1:"), "2 lines"),
        (Place("a.py", "if n > 2:", "if n >= 2:"), "0 lines"),
        (Place("a.py", "return 1", "return 2", "first"), "0 lines"),
        (Place("a.py", "return 1", "return 2", "third"), "0 times"),
        (Place("b.py", "return 1", "return 2"), "b.py does not exist"),
        (Place("a.py", "return 1", "return ("), "not Python"),
        (Place("a.py", "return 1", "return  1"), "changes nothing"),
    ],
)
def test_a_mutant_that_does_not_fit_is_an_error_and_writes_nothing(tmp_path: Path, place: Place, named: str) -> None:
    tmp_path.joinpath("a.py").write_text(SOURCE)
    with pytest.raises(MutantError, match=named):
        apply(tmp_path, place)
    assert tmp_path.joinpath("a.py").read_text() == SOURCE


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        tmp_path.joinpath(package).mkdir(parents=True)
    return tmp_path


def test_a_line_that_moved_is_found_by_its_function(tree: Path) -> None:
    tree.joinpath("trio_mcp/b.py").write_text(SOURCE)
    old = Place("trio_mcp/a.py", "if n > 1:", "if n >= 1:", "second")
    assert moved(tree, old) == Place("trio_mcp/b.py", old.old, old.new, "second")
    assert moved(tree, Place(old.file, "return 1", "return 2", "third")) == Place(
        "trio_mcp/b.py", "return 1", "return 2", "second"
    )
    assert moved(tree, Place(old.file, old.old, old.new, "third")) is None


def test_a_new_place_is_written_into_its_own_entry_only() -> None:
    text = TABLE.read_text()
    first, second, *_ = read_table()
    place = replace(first.after, file="trio_mcp/b.py", within="B.post")
    entries = tomllib.loads(update(text, first, place))["mutant"]
    assert read_mutant(entries[0]).after == place
    assert read_mutant(entries[1]) == second
    assert len(entries) == 40
