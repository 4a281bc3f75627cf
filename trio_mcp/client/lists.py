"""Reading lists page by page, from the cache where that has the page."""

# A cursor belongs to one version of the list. If a cached page has a cursor that the server no longer knows, every cached page
# of the list is stale: they are dropped, and a list that is read as a whole starts once more. An iterator cannot start again,
# as it has handed out items, so there the error reaches the caller.
#
# `next_page` is a method of an object that holds the position, and not an asynchronous generator inside of `items`. When the
# outer generator is closed, Python does not close an inner one at once: its `finally` would run in another task, whenever the
# garbage collector finds it.

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
P = TypeVar("P", bound=PaginatedResult)

MAX_ITEMS = 100_000
"""Items that a list may have when it is read as a whole; an iterator over it has no such limit."""

MAX_PAGES = 1000
"""Pages that are read before the client assumes that the list never ends."""


@dataclass(frozen=True, slots=True)
class ListKind(Generic[T]):
    """One of the lists that a server may have; `items` returns what a page of it lists."""

    method: str
    items: Callable[[PaginatedResult], list[T]]


def list_kind(method: str, page_type: type[P], items: Callable[[P], list[T]]) -> ListKind[T]:
    def items_of(page: PaginatedResult) -> list[T]:
        # For type checkers: the codec decodes the result of a method to its one type.
        assert isinstance(page, page_type)
        return items(page)

    return ListKind(method, items_of)


TOOLS: ListKind[Tool] = list_kind("tools/list", ListToolsResult, lambda page: page.tools)
PROMPTS: ListKind[Prompt] = list_kind("prompts/list", ListPromptsResult, lambda page: page.prompts)
RESOURCES: ListKind[Resource] = list_kind("resources/list", ListResourcesResult, lambda page: page.resources)
RESOURCE_TEMPLATES: ListKind[ResourceTemplate] = list_kind(
    "resources/templates/list", ListResourceTemplatesResult, lambda page: page.resource_templates
)


class RejectedCursor(PeerError):
    """The server rejected the cursor of a cached page; all cached pages of the list were invalidated (M-CACHE-2c)."""


class Lists:
    """Reads the lists of one server."""

    def __init__(self, link: Link, cache: CacheView, tools: ListedTools) -> None:
        self._link = link
        self._cache = cache
        self._tools = tools

    async def read_all(self, kind: ListKind[T]) -> list[T]:
        """Return all items of all pages.

        Raises:
            LimitExceeded: there are more than `MAX_ITEMS`.
        """
        try:
            return await self._collect(kind)
        except RejectedCursor:
            pass
        # Not in a loop: if another task caches a stale page meanwhile, the server changes its list faster than it can be read.
        return await self._collect(kind)

    async def items(self, kind: ListKind[T], timeout: float = math.inf) -> AsyncGenerator[T]:
        """Yield the items one by one. A page is requested when the one before is used up, and may take `timeout` seconds."""
        reader = ListReader(self, kind, timeout)
        while (page := await reader.next_page()) is not None:
            for item in page:
                yield item

    async def refresh_tools(self) -> None:
        """List the tools again, to learn which of their arguments are repeated in headers."""
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
        # Taken before the request: a change that is announced while it is under way makes the page stale.
        generation = self._cache.generation()
        try:
            page = await self._link.request(method, PaginatedRequestParams(cursor=cursor), timeout=timeout)
        except PeerError as error:
            if cursor is not None and error.code == INVALID_PARAMS:
                self._cache.invalidate(method)
                # Without a cached page before it, the server rejected a cursor that it has just given out: its own mistake.
                if after_cached:
                    raise RejectedCursor(error.code, error.message, error.data) from None
            raise
        assert isinstance(page, PaginatedResult)
        assert isinstance(page, CacheableResult)
        self._cache.store(method, cursor, page, generation)
        return page, False

    def usable(self, page: PaginatedResult) -> PaginatedResult:
        """Return the page without the tools that this client must not offer (S-57), and remember the others.

        Cached pages pass through here too: another client of the same cache may have stored them.
        """
        if not isinstance(page, ListToolsResult):
            return page
        return page.model_copy(update={"tools": self._tools.add(page.tools, self._link.dialect)})


class ListReader(Generic[T]):
    """The position of one reader in a list."""

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
