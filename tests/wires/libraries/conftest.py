"""A PostgreSQL server for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from store_servers import postgres_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as server:
        yield server.url
