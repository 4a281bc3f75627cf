"""`tools/list`: tools by the page."""

from .pages import CacheableResult, PaginatedResult
from .tools import Tool


class ListToolsResult(PaginatedResult, CacheableResult):
    """A page of tools."""

    tools: list[Tool]
