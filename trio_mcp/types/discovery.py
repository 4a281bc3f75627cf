"""`server/discover`: what a modern server offers."""

from .capabilities import ServerCapabilities
from .pages import CacheableResult


class DiscoverResult(CacheableResult):
    """The versions and capabilities of a modern server. Its name and version are in `_meta`."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
