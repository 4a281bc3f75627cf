"""Running tests in virtual time: their clock jumps to the next deadline whenever all tasks wait."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import iscoroutinefunction
from typing import Any

import pytest
import trio
from trio.testing import MockClock


def in_virtual_time(test: Any, clock: MockClock | None, instruments: Any) -> Any:
    """Run a test."""
    return trio.run(test, clock=clock or MockClock(autojump_threshold=0), instruments=instruments)


def run_in_virtual_time(tests: Iterable[pytest.Function]) -> None:
    """Let tests run so, but for those that bring a marker `trio` themselves."""
    for test in tests:
        if iscoroutinefunction(test.obj) and not test.get_closest_marker("trio"):
            test.add_marker(pytest.mark.trio(run=in_virtual_time))
