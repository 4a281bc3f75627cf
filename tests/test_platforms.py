"""The classifiers of the package name the platforms that docs/platforms.md calls tested, and no others."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from few_cases import few_of

from tests.pythons import run

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ROWS = dict(
    re.findall(r"^\| ([\w. -]+) \| (\w+) \|", (ROOT / "docs" / "platforms.md").read_text("utf-8"), re.MULTILINE)
)


def classified(prefix: str) -> set[str]:
    return {each.rpartition(" :: ")[2] for each in PROJECT["classifiers"] if each.startswith(prefix)}


def test_a_version_of_python_is_classified_if_it_is_tested() -> None:
    tested = {name.removeprefix("CPython ") for name, state in ROWS.items() if state == "tested" and "Python" in name}
    assert tested
    assert classified("Programming Language :: Python :: 3.") == tested


def test_a_system_is_classified_if_it_is_tested() -> None:
    tested = {name for name, state in ROWS.items() if state == "tested" and "Python" not in name}
    assert classified("Operating System") == tested == {"Linux"}


def test_every_state_is_one_that_the_page_explains() -> None:
    assert {state for state in ROWS.values() if state != "state"} <= {"tested", "tried", "checked", "claimed", "no"}


def test_the_oldest_version_is_the_one_that_the_package_requires() -> None:
    assert PROJECT["requires-python"] == ">=3.11"
    assert ROWS["CPython 3.11"] == "tested"


def test_the_tested_versions_are_the_oldest_and_the_one_of_make_test_pythons() -> None:
    tested = {name for name, state in ROWS.items() if state == "tested" and "Python" in name}
    assert tested == {"CPython 3.11", f"CPython {run.VERSION}"}
    assert "\nlane test-pythons\n" in (ROOT / ".ci" / "run").read_text("utf-8")


def test_on_another_version_every_test_runs_with_its_first_and_last_case_and_every_rule_of_the_contract() -> None:
    rows = [f"a.py::test_row[{number}]" for number in range(9)]
    rules = [f"a.py::test_contract[{number}]" for number in range(9)]
    eras = ["b.py::test_row[legacy]", "b.py::test_row[modern]"]
    few = few_of(["a.py::test_alone", *rows, *rules, *eras])
    assert few == {"a.py::test_alone", *rows[::8], *rules, *eras}


@pytest.mark.skipif(f"{sys.version_info[0]}.{sys.version_info[1]}" not in ("3.11", run.VERSION), reason="only tried")
def test_the_version_that_runs_these_tests_is_tested() -> None:
    assert ROWS[f"CPython {sys.version_info.major}.{sys.version_info.minor}"] == "tested"
