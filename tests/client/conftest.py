"""The tests of the client run in virtual time, but for those that bring a marker `trio` themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from scripted import as_legacy, as_modern
from virtual_time import run_in_virtual_time

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest-trio puts its own marker on every coroutine
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    run_in_virtual_time(item for item in items if item.path.parent == HERE)


@pytest.fixture(params=[as_legacy, as_modern], ids=["legacy", "modern"])
def opening(request: pytest.FixtureRequest) -> Any:
    return request.param
