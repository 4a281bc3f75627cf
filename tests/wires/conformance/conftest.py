"""What the tests that drive the server over stdio share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from driven import Servers, servers_of_a_module


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """examples/everything_server.py as child processes, one for each kind of peer and revision."""
    with servers_of_a_module() as servers:
        yield servers
