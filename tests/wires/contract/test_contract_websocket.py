"""The contract over this transport, in the newest revision of each era."""

import pytest
from makers import WebSocketMaker

from trio_mcp.testing.contract import Case, cases_of, newest_of_each_era


@pytest.mark.parametrize("case", cases_of(WebSocketMaker(), choose=newest_of_each_era), ids=str)
def test_contract(case: Case) -> None:
    case.run()
