"""Which cases of a test run with `--few`, on another version of Python."""

from __future__ import annotations

from collections.abc import Iterable

FEW = 4
RULES = "test_contract"
"""The tests of this name have a rule of the contract in each case, and all cases run."""


def few_of(ids: Iterable[str]) -> set[str]:
    """Return the ids of at most `FEW` cases of each test: the first one, the last one, and some between them."""
    cases: dict[str, list[str]] = {}
    for each in ids:
        test, _, _ = each.partition("[")
        cases.setdefault(each if test.endswith(f"::{RULES}") else test, []).append(each)
    return {each[(len(each) - 1) * number // (FEW - 1)] for each in cases.values() for number in range(FEW)}
