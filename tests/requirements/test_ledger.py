"""The requirement ledger is whole, names tests that exist, and is what the documentation says."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from ledger import PAGE, ROLES, ROOT, STRENGTHS, base, data_files, ids_in, marked_tests, row, rows, with_section
from spec_schemas import SPEC_DIR
from wire_terms import REVISIONS

CHECKLIST = SPEC_DIR.parent / "design/protocol.md"
"""It lies beside the specification's schema files, and like them is not part of the checkout."""

SOURCES = ("tests", "trio_mcp", "transports", "examples", "docs")
MAX_RULE = 200
NEVER_RUN = {"xfail", "skip"}

LEAST = {"rule": "A rule.", "strength": "must", "role": "both", "revisions": "2025-03-26..2025-11-25"}


def test_every_entry_of_the_checklist_has_a_row_and_every_row_an_entry() -> None:
    if not CHECKLIST.is_file():
        pytest.skip(f"the checklist is not at {CHECKLIST}")
    listed = {base(id) for id in ids_in(CHECKLIST.read_text(encoding="utf-8"))}
    assert listed == {row.checklist_id for row in rows()}


def test_an_id_is_used_once_and_an_entry_is_either_whole_or_in_parts() -> None:
    counts = Counter(row.id for row in rows())
    assert [id for id, count in counts.items() if count > 1] == []
    in_parts = {row.checklist_id for row in rows() if "." in row.id}
    assert in_parts.isdisjoint(counts)


def test_a_row_says_what_who_and_when() -> None:
    assert data_files()
    for each in rows():
        assert ids_in(each.id) == {each.id}
        assert each.rule.endswith("."), each.id
        assert len(each.rule) <= MAX_RULE, each.id
        assert each.strength in STRENGTHS, each.id
        assert each.role in ROLES, each.id
        assert each.revisions, each.id
        assert set(each.revisions) <= set(REVISIONS), each.id


def test_every_named_test_exists_and_can_fail() -> None:
    problems = []
    for each in rows():
        for node in each.tests:
            path, _, name = node.partition("::")
            marks = marked_tests(path).get(name)
            if marks is None:
                problems.append(f"{each.id}: there is no {node}")
            elif not NEVER_RUN.isdisjoint(marks):
                problems.append(f"{each.id}: {node} is not expected to pass")
    assert problems == []


def test_no_test_is_named_twice_in_a_row() -> None:
    assert [each.id for each in rows() if len(set(each.tests)) != len(each.tests)] == []


def test_an_id_in_the_code_the_tests_or_the_documentation_is_one_of_the_ledger() -> None:
    known = {each.id for each in rows()} | {each.checklist_id for each in rows()}
    files = [file for folder in SOURCES for kind in ("py", "md") for file in (ROOT / folder).rglob(f"*.{kind}")]
    found = {str(file.relative_to(ROOT)): ids_in(file.read_text(encoding="utf-8")) - known for file in files}
    assert {file: ids for file, ids in found.items() if ids} == {}


def test_the_documentation_lists_the_rules_without_tests() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_section(page), "run: python -m tests.requirements"


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"tests": []},
        {"untested": ""},
        {"tests": ["tests/a.py::test_a"], "untested": "no reason"},
        {"later": "tasks", "untested": "tasks"},
        {"tests": ["tests/a.py::test_a"], "note": "?"},
    ],
    ids=str,
)
def test_a_row_without_exactly_one_state_is_refused_by_its_id(state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=re.escape("L-RPC-1b")):
        row("L-RPC-1b", {**LEAST, **state})


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("see L-HTTP-4s, M-ERR and M-HTTP-6.", {"L-HTTP-4s", "M-ERR", "M-HTTP-6"}),
        ("(L-HTTP-4s.accepted) ends. Then L-IO-1b. Next", {"L-HTTP-4s.accepted", "L-IO-1b"}),
        ("rows S-46 and UTF-8, HTML-5x, XL-RPC-1b", set()),
    ],
)
def test_an_id_is_found_in_a_text(text: str, ids: set[str]) -> None:
    assert ids == ids_in(text)


def test_a_page_without_the_ledgers_part_is_refused() -> None:
    with pytest.raises(ValueError, match="has no part"):
        with_section("# Conformance\n")
