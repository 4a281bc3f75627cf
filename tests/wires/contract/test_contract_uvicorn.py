"""The contract under uvicorn, whose loop has Trio as its guest: each implementation of HTTP and of the loop.

The server of each case is forked off one process.
"""

from collections.abc import Iterator

import pytest
import uvicorn_makers
from forks import forking_parent
from makers import IMPORTS
from uvicorn_makers import UvicornMaker, UvicornSseMaker, UvicornWebSocketMaker

from trio_mcp.testing.contract import Case, cases_of, newest_of_each_era

STRIDE = 12
"""All cases take minutes, and `make long` runs them."""


# The two implementations of HTTP share the cases.
CASES = [
    *cases_of(UvicornMaker("h11", "asyncio"), choose=newest_of_each_era)[::2],
    *cases_of(UvicornMaker("httptools", "uvloop"), choose=newest_of_each_era)[1::2],
    *cases_of(UvicornSseMaker(), choose=lambda revisions: revisions[:1]),
    *cases_of(UvicornWebSocketMaker(), choose=newest_of_each_era),
]


@pytest.fixture(scope="module", autouse=True)
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    path = tmp_path_factory.mktemp("forks") / "socket"
    with forking_parent(path, {"PYTHONPATH": IMPORTS}, "uvicorn") as command, pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn_makers, "COMMAND", command)
        yield


@pytest.mark.parametrize("case", CASES[::STRIDE], ids=lambda case: f"{case.maker.name}-{case}")
def test_contract(case: Case) -> None:
    case.run()


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.maker.name}-{case}")
def test_whole_contract(case: Case) -> None:
    case.run()
