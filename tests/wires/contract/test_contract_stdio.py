"""The contract over this transport, in the newest revision of each era.

Rules about the process of the server start one for each case; the others are served by forks of one process.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from forks import forking_parent
from makers import IMPORTS, ForkedStdioMaker, StdioMaker

from trio_mcp.testing.contract import Case, Trait, cases_of, newest_of_each_era


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedStdioMaker]:
    path = tmp_path_factory.mktemp("forks") / "socket"
    with forking_parent(path, {"PYTHONPATH": IMPORTS}) as command:
        yield ForkedStdioMaker(command)


@pytest.mark.parametrize("case", cases_of(StdioMaker(), choose=newest_of_each_era), ids=str)
def test_contract(case: Case, forks: ForkedStdioMaker) -> None:
    (case if Trait.CHILD in case.rule.needs else replace(case, maker=forks)).run()
