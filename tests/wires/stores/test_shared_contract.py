"""The stores on a network keep the contract of stores, at real servers, and so do several processes that use one SQLite file."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_makers import InSqlite, Sealed
from store_servers import InPostgres, InRedis

from trio_mcp.testing.contract import StoreCase, StoreTrait, store_cases_of

SERVERS = {maker.name: maker for maker in (InRedis(), InPostgres())}
PROCESSES = {StoreTrait.SHARED, StoreTrait.NOTIFYING}
"""What the rules need that start processes; `tests/stores` checks the others in a file."""
OF_SERVERS = [case for maker in SERVERS.values() for case in store_cases_of(maker)]
OF_FILES = [case for maker in (InSqlite(), Sealed()) for case in store_cases_of(maker) if case.rule.needs & PROCESSES]


@pytest.mark.parametrize("case", [*OF_SERVERS, *OF_FILES], ids=str)
def test_contract(case: StoreCase, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if case.maker.name in SERVERS:
        request.getfixturevalue(f"{case.maker.name}_url")
    case.run(tmp_path)
