"""The tests of groups and agents run in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
from virtual_time import run_in_virtual_time

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest-trio puts its own marker on every coroutine
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    run_in_virtual_time(item for item in items if item.path.parent == HERE)
