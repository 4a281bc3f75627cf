"""The contract of stores: rules that every implementation of `trio_mcp.storage.Store` must follow, and the cases that test one.

The test module of a store defines a class like `StoreMaker`, and

    @pytest.mark.parametrize("case", store_cases_of(MyMaker()), ids=str)
    def test_contract(case: StoreCase, tmp_path: Path) -> None:
        case.run(tmp_path)

Each case runs in a new Trio loop, in bounded time, and fails if it leaves tasks, threads, descriptors or child processes behind.
"""

from . import leases, logs, notices, processes, records
from .cases import Opened, StoreCase, StoreMaker, StoreRule, StoreTrait, all_store_rules, store_cases_of, store_rule

__all__ = [
    "Opened",
    "StoreCase",
    "StoreMaker",
    "StoreRule",
    "StoreTrait",
    "all_store_rules",
    "leases",
    "logs",
    "notices",
    "processes",
    "records",
    "store_cases_of",
    "store_rule",
]
