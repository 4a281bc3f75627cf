"""What the tests of servers share: the eras in which a test runs."""

from __future__ import annotations

import pytest
from talk import ERAS, Legacy


@pytest.fixture(params=ERAS, ids=lambda era: era.era)
def era(request: pytest.FixtureRequest) -> type[Legacy]:
    """How one call is made and followed in each era."""
    return request.param
