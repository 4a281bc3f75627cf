"""The table of mutants fits the tree; what kills them is seen by `make mutants`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from mutant_table import AREAS, ROOT, MutantError, Place, apply, check, read_table

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
        check(ROOT, mutant.place)


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
