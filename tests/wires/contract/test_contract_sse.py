"""The contract over this transport, in 2024-11-05, which is the revision that has it; newer rules in the oldest that has them."""

import pytest
from makers import SseMaker

from trio_mcp.testing.contract import Case, cases_of


@pytest.mark.parametrize("case", cases_of(SseMaker(), choose=lambda revisions: revisions[:1]), ids=str)
def test_contract(case: Case) -> None:
    case.run()
