"""What the tests of authorization share."""

from __future__ import annotations

import pytest
from oauth_world import World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """The peers of a client, which it reaches in place of the network."""
    made = World()
    made.use(monkeypatch)
    return made
