"""Which cases of a test run with `--few`, on another version of Python."""

from __future__ import annotations

from collections.abc import Iterable

RULES = "test_contract"
"""The tests of this name have a rule of the contract in each case, and all cases run."""


def few_of(ids: Iterable[str]) -> set[str]:
    """Return the ids of the first and of the last case of each test, which often are of the two eras."""
    cases: dict[str, list[str]] = {}
    for each in ids:
        test, _, _ = each.partition("[")
        cases.setdefault(each if test.endswith(f"::{RULES}") else test, []).append(each)
    return {case for each in cases.values() for case in (each[0], each[-1])}
