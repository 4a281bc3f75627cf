"""The contract over sockets, in the newest revision of each era; over HTTP+SSE in 2024-11-05, or the oldest that has the rule."""

import pytest
from makers import SseMaker, StreamableHttpMaker, WebSocketMaker

from trio_mcp.testing.contract import Case, cases_of, newest_of_each_era

CASES = [
    *cases_of(StreamableHttpMaker(), choose=newest_of_each_era),
    *cases_of(SseMaker(), choose=lambda revisions: revisions[:1]),
    *cases_of(WebSocketMaker(), choose=newest_of_each_era),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.maker.name}-{case}")
def test_contract(case: Case) -> None:
    case.run()
