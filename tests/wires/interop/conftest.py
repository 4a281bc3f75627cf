"""Servers that the tests of this folder share."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from processes import HERE, over_http


@pytest.fixture(scope="session")
def peer_url() -> Iterator[str]:
    """Our server with a tool for everything, over HTTP."""
    with over_http([sys.executable, str(HERE / "serve_http.py"), str(HERE / "peer_server.py")]) as url:
        yield url


@pytest.fixture(scope="session")
def official_url() -> Iterator[str]:
    """The official SDK's server, over HTTP."""
    pytest.importorskip("mcp", reason="the official SDK is not installed")
    with over_http([sys.executable, str(HERE / "official_server.py"), "http", "0"]) as url:
        yield url


@pytest.fixture(scope="session")
def peer_sse_url() -> Iterator[str]:
    """Our server with a tool for everything, over HTTP+SSE alone."""
    with over_http([sys.executable, str(HERE / "serve_http.py"), str(HERE / "peer_server.py"), "sse"]) as url:
        yield url


@pytest.fixture(scope="session")
def official_sse_url() -> Iterator[str]:
    """The official SDK's server, over HTTP+SSE alone."""
    pytest.importorskip("mcp", reason="the official SDK is not installed")
    with over_http([sys.executable, str(HERE / "official_server.py"), "sse", "0"]) as url:
        yield url
