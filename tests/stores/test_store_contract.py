"""The stores of this project keep the contract of stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_makers import InMemory, InSqlite, Sealed

from trio_mcp.testing.contract.store import StoreCase, StoreTrait, store_cases_of

MAKERS = (InMemory(), InSqlite(), Sealed())


def cases(*, shared: bool) -> list[StoreCase]:
    several = {StoreTrait.SHARED, StoreTrait.NOTIFYING}
    return [case for maker in MAKERS for case in store_cases_of(maker) if bool(several & case.rule.needs) == shared]


@pytest.mark.parametrize("case", cases(shared=False), ids=str)
def test_contract(case: StoreCase, tmp_path: Path) -> None:
    case.run(tmp_path)


@pytest.mark.wires
@pytest.mark.parametrize("case", cases(shared=True), ids=str)
def test_contract_of_several_processes(case: StoreCase, tmp_path: Path) -> None:
    case.run(tmp_path)
