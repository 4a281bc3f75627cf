"""docs/internals/contract.md says what the contract is, and its example passes it."""

from __future__ import annotations

import re
import subprocess
import sys
from types import ModuleType

import pytest
from page import with_tables
from pages import Names, Page
from serving import ROOT
from table import GROUPS

from trio_mcp.testing import contract
from trio_mcp.testing.contract import MODERN, Case, cases_of
from trio_mcp.testing.contract.rules import _RULES

PAGE = Page("internals/contract")
NEWEST_LIVE = "2025-11-25"

SHOWN = (
    "a_tool_is_called",
    "a_call_ends_when_its_connection_is_lost",
    "a_call_that_writes_ends_when_its_connection_is_lost",
    "a_cancelled_sample_is_withdrawn_and_not_answered",
    "a_call_may_take_several_rounds_and_runs_once",
    "a_hundred_concurrent_calls_each_get_their_own_answer",
    "a_client_that_does_not_read_blocks_no_other_client",
    "a_shutdown_waits_for_calls_and_rejects_new_ones",
    "a_call_that_waits_ends_when_it_is_cancelled",
)
"""Rules that the transport of the page is held against here; it passes the others as well."""


def page() -> Names:
    """What the code of the page defines; a rule that it adds is taken back."""
    names: Names = {"__name__": "contract_page"}
    exec(PAGE.blocks[0], names)
    before = dict(_RULES)
    exec(PAGE.blocks[2], names)
    names["rules"] = dict(_RULES)
    _RULES.clear()
    _RULES.update(before)
    return names


NAMES = page()


def shown_cases() -> list[Case]:
    maker = NAMES["LinesMaker"]()
    return [
        Case(NAMES["rules"][name], maker, revision)
        for name in SHOWN
        for revision in (NEWEST_LIVE, *MODERN)
        if NAMES["rules"][name].impossible(maker, revision) is None
    ]


@pytest.mark.parametrize("case", shown_cases(), ids=str)
def test_the_transport_of_the_page_keeps_the_contract(case: Case) -> None:
    case.run()


def test_the_test_module_of_the_page_has_every_case_of_its_transport() -> None:
    names = dict(NAMES)
    exec(PAGE.blocks[1], names)
    (mark,) = names["test_contract"].pytestmark
    assert [str(case) for case in mark.args[1]] == [str(case) for case in cases_of(NAMES["LinesMaker"]())]


def test_the_tables_are_those_of_the_rules() -> None:
    assert with_tables(PAGE.text) == PAGE.text, "run tests/contract/page.py"


def test_every_rule_is_in_a_group_that_the_tables_show() -> None:
    assert {rule.group for rule in _RULES.values()} <= set(GROUPS)


def test_every_public_name_is_what_it_says_and_no_module_of_that_name() -> None:
    found = {name for name in contract.__all__ if isinstance(getattr(contract, name), ModuleType)}
    assert found == set()


def printed(code: str) -> str:
    """What a program prints in which nothing of the tests is loaded."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


USES = "import sys; from trio_mcp.testing.contract import Stage, contract_server, linked_stage"


def test_a_server_in_a_separate_process_loads_nothing_of_the_other_side() -> None:
    assert printed(f"{USES}; print({{'trio_mcp.client', 'pytest'}} & set(sys.modules))") == "set()\n"


def test_the_rules_of_the_package_call_no_tool_that_only_our_tests_have() -> None:
    tools = printed(f"{USES}; print(*(tool.name for tool in contract_server(Stage()).tools))").split()
    groups = (ROOT / "trio_mcp" / "testing" / "contract" / "groups").glob("*.py")
    called = {name for file in groups for name in re.findall(r'\bcall(?:_tool)?\("(\w+)"', file.read_text())}
    assert called - {*tools} == {"no_such"}


def test_every_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`(test_\w+\.py)::(\w+)`", PAGE.text)
    assert named
    sources = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    assert [f"{file}::{name}" for file, name in named if f"def {name}(" not in sources[file]] == []
