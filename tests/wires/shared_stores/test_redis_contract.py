"""The store in Redis keeps the contract of stores, at a real server."""

from __future__ import annotations

from pathlib import Path

import pytest
from store_servers import InRedis

from trio_mcp.testing.contract import StoreCase, store_cases_of


@pytest.mark.usefixtures("redis_url")
@pytest.mark.parametrize("case", store_cases_of(InRedis()), ids=str)
def test_contract(case: StoreCase, tmp_path: Path) -> None:
    case.run(tmp_path)
