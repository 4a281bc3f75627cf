"""Servers that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache

import pytest
from processes import Target, command_of, over_http


@pytest.fixture(scope="session")
def target() -> Iterator[Target]:
    """Each server over HTTP starts when it is first asked for, and serves the rest of the session."""
    with ExitStack() as servers:

        @cache
        def url(script: str, transport: str) -> str:
            return servers.enter_context(over_http(command_of(script, transport)))

        def target(script: str, transport: str) -> str | list[str]:
            return command_of(script, transport) if transport == "stdio" else url(script, transport)

        yield target
