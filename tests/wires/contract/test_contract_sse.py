"""The contract over this transport."""

import pytest
from makers import SseMaker

from trio_mcp.testing.contract import Case, cases_of


@pytest.mark.parametrize("case", cases_of(SseMaker()), ids=str)
def test_contract(case: Case) -> None:
    case.run()
