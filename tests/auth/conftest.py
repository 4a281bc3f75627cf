"""The tests of authorization that need neither threads nor sockets run in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
from oauth_world import World
from virtual_time import run_in_virtual_time

HERE = Path(__file__).parent
REAL = ("test_redirect_page.py", "test_token_files.py", "test_fetching.py")


@pytest.hookimpl(tryfirst=True)  # before pytest-trio puts its own marker on every coroutine
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    run_in_virtual_time(item for item in items if item.path.parent == HERE and item.path.name not in REAL)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """The peers of a client, which it reaches in place of the network."""
    made = World()
    made.use(monkeypatch)
    return made
