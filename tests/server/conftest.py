"""What the tests of servers share: the eras in which a test runs."""

from __future__ import annotations

import pytest
from both_loops import Run, beside_trio, in_program
from talk import ERAS, Legacy


@pytest.fixture(params=ERAS, ids=lambda era: era.era)
def era(request: pytest.FixtureRequest) -> type[Legacy]:
    """How one call is made and followed in each era."""
    return request.param


@pytest.fixture(params=[in_program, beside_trio])
def run(request: pytest.FixtureRequest) -> Run:
    """How a Trio function runs: in an asyncio program, and where there is none."""
    return request.param
