"""The requirement ledger: every rule of the protocol checklist, and the tests that would fail if the rule were broken.

The rows are in `legacy/*.toml` and `modern/*.toml`, one table for each rule. A checklist entry that says several things
has several rows, whose ids go on after a dot: `L-HTTP-4s.accepted`. A row says one of three things of itself:

* `tests`: pytest node ids, or `contract::` and the name of a rule that every transport is held to, the one in memory first;
* `untested`: why no test holds the rule;
* `later`: the subject of the later work that brings the rule.

Usage: `python -m tests.requirements` writes the rows without tests into `docs/internals/conformance.md`.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from more_rules.catalogue import all_rules

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs/internals/conformance.md"
REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
STRENGTHS = ("must", "should", "may")
ROLES = ("server", "client", "both")
STATES = ("tests", "untested", "later")

ID = re.compile(r"\b[LM]-(?:ERR\b|[A-Z]+-\d+[scb]?\b)(?:\.[a-z]+(?:-[a-z]+)*\b)?")
"""A rule's id, with or without the name of a part."""

BEGIN, END = "<!-- requirements: begin -->", "<!-- requirements: end -->"


@dataclass(frozen=True, slots=True)
class Row:
    """One rule.

    Attributes:
        state: which of `STATES` the row has.
        reason: why there is no test, or the subject of the work that brings it; empty where there are tests.
    """

    id: str
    rule: str
    strength: str
    role: str
    revisions: tuple[str, ...]
    state: str
    reason: str
    tests: tuple[str, ...]

    @property
    def checklist_id(self) -> str:
        return base(self.id)


def base(id: str) -> str:
    """The id without the name of a part."""
    return id.partition(".")[0]


@cache
def rows() -> tuple[Row, ...]:
    """Every row, in the order of the files and of the tables in them."""
    return tuple(row for file in data_files() for row in read(file))


def data_files() -> list[Path]:
    return sorted((HERE / "legacy").glob("*.toml")) + sorted((HERE / "modern").glob("*.toml"))


def read(file: Path) -> Iterator[Row]:
    """The rows of one file; its `revisions` hold for every row that names none."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    revisions = tables.pop("revisions")
    for id, table in tables.items():
        yield row(id, {"revisions": revisions, **table})


def row(id: str, table: Mapping[str, Any]) -> Row:
    """Raises ValueError, with the id, for a table that is no row."""
    (state, *more) = [state for state in STATES if state in table] or [""]
    unknown = set(table) - {"rule", "strength", "role", "revisions", *STATES}
    if more or not state or unknown or not table[state]:
        raise ValueError(f"{id} needs exactly one of {', '.join(STATES)}, and has {sorted(table)}")
    tests = tuple(table["tests"]) if state == "tests" else ()
    reason = "" if tests else table[state]
    return Row(id, table["rule"], table["strength"], table["role"], between(table["revisions"]), state, reason, tests)


def between(text: str) -> tuple[str, ...]:
    """The revisions of `2025-03-26..2025-11-25`, or the only one of `2025-03-26`."""
    first, _, last = text.partition("..")
    return REVISIONS[REVISIONS.index(first) : REVISIONS.index(last or first) + 1]


def ids_in(text: str) -> set[str]:
    return set(ID.findall(text))


# the tests of the tree


@cache
def marked_tests(path: str) -> Mapping[str, tuple[str, ...]]:
    """The tests of a file by name, with the names of their marks; of the contract, its rules."""
    if path == "contract":
        return {rule.name: () for rule in all_rules()}
    file = ROOT / path
    body = ast.parse(file.read_bytes()).body if file.is_file() else []
    functions = [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {each.name: tuple(map(mark_of, each.decorator_list)) for each in functions if each.name.startswith("test")}


def mark_of(decorator: ast.expr) -> str:
    """`xfail` of `@pytest.mark.xfail(...)`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return called.attr if isinstance(called, ast.Attribute) else ""


# the page


def section() -> str:
    """The part of `docs/internals/conformance.md` that belongs to the ledger."""
    blocks = [BEGIN, "", summary()]
    for state, title, first_column in (
        ("untested", "Rules without a test", "Why there is none"),
        ("later", "Rules of later work", "Brought by"),
    ):
        listed = [row for row in rows() if row.state == state]
        if listed:
            blocks += ["", f"### {title}", "", *table(listed, first_column)]
    return "\n".join([*blocks, "", END])


def summary() -> str:
    counts = {state: sum(row.state == state for row in rows()) for state in STATES}
    return (
        f"The ledger in `tests/requirements/` has {len(rows())} rules: {counts['tests']} have tests, "
        f"{counts['untested']} have none, {counts['later']} belong to later work. "
        "A rule has a test if the test fails when the rule is broken."
    )


def table(listed: Iterable[Row], last: str) -> Iterator[str]:
    yield f"| Rule | Strength | Revisions | What it says | {last} |"
    yield "|---|---|---|---|---|"
    for row in listed:
        span = row.revisions[0] if len(row.revisions) == 1 else f"{row.revisions[0]} to {row.revisions[-1]}"
        yield f"| {row.id} | {row.strength} | {span} | {row.rule} | {row.reason} |"


def with_section(page: str) -> str:
    """The page with the ledger's part brought up to date; the rest is left as it is.

    Raises:
        ValueError: the page has no such part.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE} has no part between {BEGIN} and {END}")
    return before + section() + after
