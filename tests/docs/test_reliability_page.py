"""The page about what goes wrong names rules and tests that exist, has every row, and leaves out no rule of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterator

from more_rules.catalogue import all_rules
from serving import ROOT

PAGE = ROOT / "docs/internals/reliability.md"
ROWS = range(32, 151)

TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
STORE_ERROR = re.compile(r"\b(StoreTimeout|StoreError|may_be_made)\b")
RULE = re.compile(r"`([a-z0-9_]+)`")


def table() -> list[list[str]]:
    """The cells of every row that has a number."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [line.strip("| ").split(" | ") for line in lines if re.match(r"\| \d", line)]


def named_rules() -> Iterator[tuple[str, str]]:
    for number, _, _, rules_of_row, _ in table():
        for name in RULE.findall(rules_of_row):
            yield number, name


def test_every_file_that_names_an_error_of_stores_is_in_the_table_of_late_writes() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("## Writes that are made late")[2].partition("\n## ")[0]
    sources = [*(ROOT / "trio_mcp").rglob("*.py"), *(ROOT / "transports").rglob("*.py")]
    named = {
        str(path.relative_to(ROOT))
        for path in sources
        # A package only exports the names.
        if path.name != "__init__.py" and STORE_ERROR.search(path.read_text(encoding="utf-8")) is not None
    }
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert {path for cell in cells for path in re.findall(r"`([^`]+)`", cell)} == named


def test_every_row_of_the_catalogue_is_there_once_and_in_order() -> None:
    assert [int(number) for number, *_ in table()] == list(ROWS)


def test_every_row_is_held_by_something() -> None:
    assert [number for number, _, _, rules, tests in table() if not (RULE.search(rules) or TEST.search(tests))] == []


def test_every_rule_that_is_named_exists() -> None:
    known = {rule.name for rule in all_rules()}
    assert [f"row {number}: {name}" for number, name in named_rules() if name not in known] == []


def test_every_rule_of_the_catalogue_is_named() -> None:
    named = {name for _, name in named_rules()}
    of_the_catalogue = {rule.name for rule in all_rules() if rule.group in ("peers", "calls")}
    assert sorted(of_the_catalogue - named) == []
