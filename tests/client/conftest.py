"""The tests of the client run in virtual time, but for those that bring a marker `trio` themselves."""

from __future__ import annotations

from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
import trio
from scripted import as_legacy, as_modern
from trio.testing import MockClock

HERE = Path(__file__).parent


def in_virtual_time(test: Any, clock: MockClock | None, instruments: Any) -> Any:
    """Run a test with a clock that jumps to the next deadline whenever all tasks wait."""
    return trio.run(test, clock=clock or MockClock(autojump_threshold=0), instruments=instruments)


@pytest.hookimpl(tryfirst=True)  # before pytest-trio puts its own marker on every coroutine
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    for item in items:
        if item.path.parent == HERE and iscoroutinefunction(item.obj) and not item.get_closest_marker("trio"):
            item.add_marker(pytest.mark.trio(run=in_virtual_time))


@pytest.fixture(params=[as_legacy, as_modern], ids=["legacy", "modern"])
def opening(request: pytest.FixtureRequest) -> Any:
    return request.param
