"""Stores that several processes share, as fixtures."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest
from store_servers import POSTGRES_VARIABLE, REDIS_VARIABLE

VARIABLES = {"redis": REDIS_VARIABLE, "postgres": POSTGRES_VARIABLE}


@pytest.fixture(params=VARIABLES)
def database(request: pytest.FixtureRequest) -> str:
    """The URL of a database server."""
    request.getfixturevalue(f"{request.param}_url")
    return os.environ[VARIABLES[request.param]]


@pytest.fixture
def namespace(database: str) -> str:
    """The URL of a store in a database that no other test uses."""
    return f"{database}?namespace={secrets.token_hex(8)}"


@pytest.fixture(params=[*VARIABLES, "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, or the path of a file."""
    if request.param == "sqlite":
        return str(tmp_path / "state.db")
    request.getfixturevalue(f"{request.param}_url")
    return f"{os.environ[VARIABLES[request.param]]}?namespace={secrets.token_hex(8)}"
