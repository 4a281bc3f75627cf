"""Reading lists page by page, from the cache where that has the page."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from ..errors import LimitExceeded, PeerError
from ..protocol.jsonrpc import INVALID_PARAMS
from ..types import (
    CacheableResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    PaginatedResult,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
)
from .cache import CacheView
from .link import Link
from .listed_tools import ListedTools

T = TypeVar("T")

MAX_ITEMS = 100_000
"""Items that a list may have when it is read as a whole; an iterator over it has no such limit."""

MAX_PAGES = 1000
"""Pages that are read before the client assumes that the list never ends."""


@dataclass(frozen=True, slots=True)
class ListKind(Generic[T]):
    """One of the lists that a server may have; `items` returns what a page of it lists."""

    method: str
    items: Callable[[PaginatedResult], list[T]]


def tools_of(page: PaginatedResult) -> list[Tool]:
    assert isinstance(page, ListToolsResult)
    return page.tools


def prompts_of(page: PaginatedResult) -> list[Prompt]:
    assert isinstance(page, ListPromptsResult)
    return page.prompts


def resources_of(page: PaginatedResult) -> list[Resource]:
    assert isinstance(page, ListResourcesResult)
    return page.resources


def templates_of(page: PaginatedResult) -> list[ResourceTemplate]:
    assert isinstance(page, ListResourceTemplatesResult)
    return page.resource_templates


TOOLS = ListKind("tools/list", tools_of)
PROMPTS = ListKind("prompts/list", prompts_of)
RESOURCES = ListKind("resources/list", resources_of)
RESOURCE_TEMPLATES = ListKind("resources/templates/list", templates_of)


class RejectedCursor(Exception):
    """The server rejected the cursor of a cached page; all cached pages of the list were invalidated (M-CACHE-2c)."""

    def __init__(self, error: PeerError) -> None:
        super().__init__(str(error))
        self.error = error


class Lists:
    """Reads the lists of one server."""

    def __init__(self, link: Link, cache: CacheView, tools: ListedTools) -> None:
        self._link = link
        self._cache = cache
        self._tools = tools

    async def read_all(self, kind: ListKind[T]) -> list[T]:
        """Return all items of all pages. If a cached page had a stale cursor, start once more, without the cache.

        Raises:
            LimitExceeded: there are more than `MAX_ITEMS`.
        """
        try:
            return await self._collect(kind)
        except RejectedCursor:
            pass
        try:
            return await self._collect(kind)
        except RejectedCursor as rejected:  # another task cached a page meanwhile
            raise rejected.error from None

    async def items(self, kind: ListKind[T], timeout: float = math.inf) -> AsyncGenerator[T]:
        """Yield the items one by one; a page is requested when the one before is used up, and may take `timeout` seconds."""
        reader = ListReader(self, kind, timeout)
        try:
            while (page := await reader.next_page()) is not None:
                for item in page:
                    yield item
        except RejectedCursor as rejected:
            raise rejected.error from None

    async def refresh_tools(self) -> None:
        """List the tools anew, and so learn which of their arguments go into headers."""
        self._cache.invalidate(TOOLS.method)
        await self.read_all(TOOLS)

    async def _collect(self, kind: ListKind[T]) -> list[T]:
        reader = ListReader(self, kind, math.inf)
        items: list[T] = []
        while (page := await reader.next_page()) is not None:
            items += page
            if len(items) > MAX_ITEMS:
                raise LimitExceeded(
                    f"{kind.method} has more than {MAX_ITEMS} items, which is the limit; read it item by item"
                )
        return items

    async def fetch(
        self, method: str, cursor: str | None, timeout: float, after_cached: bool
    ) -> tuple[PaginatedResult, bool]:
        """Return one page, and whether it came from the cache."""
        cached = self._cache.find(method, cursor)
        if isinstance(cached, PaginatedResult):
            return cached, True
        generation = self._cache.generation()
        try:
            page = await self._link.request(method, PaginatedRequestParams(cursor=cursor), timeout=timeout)
        except PeerError as error:
            if cursor is not None and error.code == INVALID_PARAMS:
                self._cache.invalidate(method)
                if after_cached:
                    raise RejectedCursor(error) from None
            raise
        assert isinstance(page, PaginatedResult)
        assert isinstance(page, CacheableResult)
        self._cache.store(method, cursor, page, generation)
        return page, False

    def usable(self, page: PaginatedResult) -> PaginatedResult:
        """Return the page without the tools that this client must not offer (S-57), and remember the others."""
        if not isinstance(page, ListToolsResult):
            return page
        return page.model_copy(update={"tools": self._tools.add(page.tools, self._link.dialect)})


class ListReader(Generic[T]):
    """How far one reader of a list has come. A class and not a generator: a generator in a generator is closed too late."""

    def __init__(self, lists: Lists, kind: ListKind[T], timeout: float) -> None:
        self._lists = lists
        self._kind = kind
        self._timeout = timeout
        self._cursor: str | None = None
        self._pages = 0
        self._from_cache = False

    async def next_page(self) -> list[T] | None:
        """Return what the next page lists, or None after the last one.

        Raises:
            LimitExceeded: there are more than `MAX_PAGES`.
            RejectedCursor: a cached page had a stale cursor.
        """
        method = self._kind.method
        if self._pages and self._cursor is None:
            return None
        if self._pages >= MAX_PAGES:
            raise LimitExceeded(f"{method} has more than {MAX_PAGES} pages, which is the limit")
        page, self._from_cache = await self._lists.fetch(method, self._cursor, self._timeout, self._from_cache)
        self._pages += 1
        self._cursor = page.next_cursor
        return self._kind.items(self._lists.usable(page))
