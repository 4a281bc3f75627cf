"""One server of each kind for the cases of the contract."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from store_servers import POSTGRES_VARIABLE, REDIS_VARIABLE, postgres_server, redis_server


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with redis_server() as server, pytest.MonkeyPatch.context() as patch:
        # For the processes that a case starts, too.
        patch.setitem(os.environ, REDIS_VARIABLE, server.url)
        yield server.url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    with postgres_server() as server, pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, POSTGRES_VARIABLE, server.url)
        yield server.url
