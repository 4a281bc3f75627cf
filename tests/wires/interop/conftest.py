"""Servers that the tests of this folder share, and hosts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from node_packages import installed
from processes import Target, command_of, over_http

HOSTS = {"@anthropic-ai/claude-code": "2", "@google/gemini-cli": "0"}
"""Hosts that list their servers without a login."""

HOSTS_TIMEOUT = 240.0


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


@pytest.fixture(scope="session")
def host_programs() -> Path:
    """The `node_modules` with the hosts, which are installed once, into the folder that `TRIO_MCP_HOSTS_CACHE` names."""
    folder = Path(os.environ.get("TRIO_MCP_HOSTS_CACHE", Path(tempfile.gettempdir()) / "trio_mcp_hosts"))
    with installed(folder, HOSTS, HOSTS_TIMEOUT):
        return folder / "node_modules"
