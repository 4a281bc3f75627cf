"""Shows at the end how much was tried."""

from __future__ import annotations

import pytest

TRIED = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TRIED] = []


@pytest.fixture(scope="session")
def tried(request: pytest.FixtureRequest) -> list[str]:
    """Lines for the end of the report."""
    return request.config.stash[TRIED]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash[TRIED]:
        terminalreporter.write_line(line)
