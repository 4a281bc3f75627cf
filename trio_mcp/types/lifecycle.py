"""How a conversation begins: `initialize` until 2025-11-25, `server/discover` since 2026-07-28."""

from .capabilities import ClientCapabilities, ServerCapabilities
from .implementation import Implementation
from .messages import CacheableResult, RequestParams, Result


class InitializeRequestParams(RequestParams):
    """A client opens a legacy session."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result):
    """A server answers with the version it chose."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult):
    """The revisions and capabilities of a modern server. Its name and version are in `_meta`."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
