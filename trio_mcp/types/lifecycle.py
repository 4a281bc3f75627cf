"""How client and server learn about each other: `initialize` up to 2025-11-25, `server/discover` since 2026-07-28."""

from typing import Annotated

from .base import MAX_RECEIVED, Model, at_most
from .capabilities import ClientCapabilities, ServerCapabilities
from .content import Icon
from .messages import CacheableResult, RequestParams, Result

# The name and version of a client or a server.


class Implementation(Model):
    """The name and version of a program, for display and logs only: no behaviour may depend on it."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    icons: Annotated[list[Icon] | None, at_most(MAX_RECEIVED)] = None
    website_url: str | None = None


class InitializeRequestParams(RequestParams):
    """The params of `initialize`, with which a client opens a legacy session."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result):
    """The result of `initialize`, with the version that the server has chosen."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult):
    """The versions and capabilities of a modern server. Its name and version are in `_meta`."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
