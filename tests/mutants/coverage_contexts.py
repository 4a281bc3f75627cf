"""A pytest plugin that tells coverage which test runs, with its fixtures and all tasks of its Trio run."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path

import coverage
import pytest

seconds: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    measuring = coverage.Coverage.current()
    assert measuring is not None, "run it with `coverage run -m pytest`"
    measuring.switch_context(item.nodeid)
    try:
        return (yield)
    finally:
        measuring.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    Path(os.environ["MUTANT_SECONDS"]).write_text(json.dumps(seconds))
