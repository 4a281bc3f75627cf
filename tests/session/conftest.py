"""What the tests of sessions share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from keyed_shop import Shop
from talk import ERAS, Legacy, Talk, session_with
from task_talk import TASK_ERAS, LegacyTask

from trio_mcp import Server

# What the modules of machines assert is shown as in a test.
pytest.register_assert_rewrite("rounds_calls", "rounds_invariants", "rounds_records", "rounds_rules")


@pytest.fixture(params=ERAS, ids=lambda era: era.era)
def era(request: pytest.FixtureRequest) -> type[Legacy]:
    """How one call is made and followed in each era."""
    return request.param


@pytest.fixture(params=TASK_ERAS, ids=lambda era: era.era)
def task_era(request: pytest.FixtureRequest) -> type[LegacyTask]:
    """How a call is made as a task in each era."""
    return request.param


@pytest.fixture
def shop() -> Shop:
    """A shop that serves one process after the other."""
    return Shop()


@pytest.fixture
async def talk(server: Server) -> AsyncIterator[Talk]:
    """A legacy session with the test module's server."""
    async with session_with(server) as talk:
        yield talk
