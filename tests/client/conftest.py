"""What the tests of the client share."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import as_legacy, as_modern


@pytest.fixture(params=[as_legacy, as_modern], ids=["legacy", "modern"])
def opening(request: pytest.FixtureRequest) -> Any:
    return request.param
