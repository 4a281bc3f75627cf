"""The table of a run, printed and in the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from counting import Check, Outcome
from driving import Ran
from report import BEGIN, END, markdown, printed, written_into
from selections import Selection

PASSED = Check("ping-response", "Ping", "SUCCESS")
FAILED = Check("ping-response", "Ping", "FAILURE", "it was not {}")


def ran(*checks: Check) -> Ran:
    selection = Selection("server", "1.2", "required", 1, lambda suite, role: [])
    return Ran(selection, [Outcome("ping", "server", checks)], 1.5)


def test_a_selection_that_passed_is_one_line() -> None:
    (line,) = printed(ran(PASSED))
    assert " ".join(line.split()) == "server 1.2 required 1/1 1 passed, 0 failed, 0 warned, 0 skipped 1.5 s pass"


def test_what_did_not_pass_is_named_with_its_reason() -> None:
    lines = list(printed(ran(PASSED, FAILED)))
    assert lines[0].endswith("FAIL")
    assert [line.strip() for line in lines[1:]] == ["ping", "FAILURE Ping (ping-response): it was not {}"]


def test_the_table_of_the_page_is_replaced_and_the_rest_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    table = markdown([ran(PASSED), ran(FAILED)])
    assert "| server | 1.2 | required | 1/1 |  |" in table
    assert "| server | 1.2 | required | 0/1 |  |" in table
    assert written_into(page, table) == f"before\n{BEGIN}\n\n{table}\n\n{END}\nafter\n"


def test_a_page_without_a_place_for_the_table_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="no place"):
        written_into(page, "")
