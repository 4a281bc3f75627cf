"""The contract under uvicorn, whose loop has Trio as its guest: each implementation of HTTP and of the loop."""

import pytest
from uvicorn_makers import UvicornMaker, UvicornSseMaker, UvicornWebSocketMaker

from trio_mcp.testing.contract import Case, cases_of, newest_of_each_era

STRIDE = 12
"""Each case starts a process: all of them take a quarter of an hour, and `make long` runs them."""


# The two implementations of HTTP share the cases.
CASES = [
    *cases_of(UvicornMaker("h11", "asyncio"), choose=newest_of_each_era)[::2],
    *cases_of(UvicornMaker("httptools", "uvloop"), choose=newest_of_each_era)[1::2],
    *cases_of(UvicornSseMaker(), choose=lambda revisions: revisions[:1]),
    *cases_of(UvicornWebSocketMaker(), choose=newest_of_each_era),
]


@pytest.mark.parametrize("case", CASES[::STRIDE], ids=lambda case: f"{case.maker.name}-{case}")
def test_contract(case: Case) -> None:
    case.run()


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.maker.name}-{case}")
def test_whole_contract(case: Case) -> None:
    case.run()
