"""The OpenID provider, whose library is from npm."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from node_packages import installed
from oidc_provider import Provider, provider

INSTALL_TIMEOUT = 120.0


@pytest.fixture(scope="session")
def modules() -> Path:
    """The folder with the provider's library, which is installed once, into what `TRIO_MCP_OIDC_CACHE` names."""
    folder = Path(os.environ.get("TRIO_MCP_OIDC_CACHE", Path(tempfile.gettempdir()) / "trio_mcp_oidc"))
    with installed(folder, {"oidc-provider": "9.13.3"}, INSTALL_TIMEOUT):
        return folder


@pytest.fixture
async def idp(modules: Path) -> AsyncIterator[Provider]:
    """A running provider."""
    async with provider(modules) as found:
        yield found
