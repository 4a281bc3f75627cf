"""The contract under uvicorn, whose loop has Trio as its guest: each implementation of HTTP and of the loop."""

import pytest
from uvicorn_makers import UvicornMaker, UvicornSseMaker, UvicornWebSocketMaker

from trio_mcp.testing.contract import Case, cases_of, newest_of_each_era
from trio_mcp.testing.contract.rules import MODERN

STRIDE = 12
"""Each case starts a process: all of them take a quarter of an hour, and `make long` runs them."""


def seen_by_uvicorn(case: Case) -> bool:
    """Return whether uvicorn can follow the rule.

    A modern client cancels a call by closing its connection. A transport of asyncio that waits to write reports the end only
    after the write, so uvicorn does not learn of it while the network takes nothing: a limit that docs/asyncio.md names.
    """
    return case.rule.name != "a_cancel_arrives_although_no_message_of_the_server_does" or case.revision not in MODERN


# The two implementations of HTTP share the cases.
CASES = [
    *filter(seen_by_uvicorn, cases_of(UvicornMaker("h11", "asyncio"), choose=newest_of_each_era)[::2]),
    *filter(seen_by_uvicorn, cases_of(UvicornMaker("httptools", "uvloop"), choose=newest_of_each_era)[1::2]),
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
