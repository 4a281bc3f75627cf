"""Several processes that use one SQLite file."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_makers import InSqlite, Sealed

from trio_mcp.testing.contract import StoreCase, StoreTrait, store_cases_of

CASES = [
    case
    for maker in (InSqlite(), Sealed())
    for case in store_cases_of(maker)
    if case.rule.needs & {StoreTrait.SHARED, StoreTrait.NOTIFYING}
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_contract(case: StoreCase, tmp_path: Path) -> None:
    case.run(tmp_path)
