"""The contract over every real wire in every revision."""

import pytest
from makers import ALL_MAKERS

from trio_mcp.testing.contract import Case, Trait, cases_of

CASES = [
    pytest.param(case, id=f"{maker.name}-{case}")
    for maker in ALL_MAKERS
    if Trait.VIRTUAL not in maker.traits
    for case in cases_of(maker)
]


@pytest.mark.parametrize("case", CASES)
def test_contract(case: Case) -> None:
    case.run()
