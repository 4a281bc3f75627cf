"""The stores of this project keep the contract of stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_makers import InMemory, InSqlite, Sealed

from trio_mcp.testing.contract import StoreCase, StoreTrait, store_cases_of

MAKERS = (InMemory(), InSqlite(), Sealed())
PROCESSES = {StoreTrait.SHARED, StoreTrait.NOTIFYING}
"""The rules that start processes are checked in `tests/wires/stores`."""
CASES = [case for maker in MAKERS for case in store_cases_of(maker) if not case.rule.needs & PROCESSES]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_contract(case: StoreCase, tmp_path: Path) -> None:
    case.run(tmp_path)
