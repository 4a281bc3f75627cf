"""Reading lists page by page, from the cache where that has the page."""

# A cursor belongs to one version of the list. If a cached page has a cursor that the server no longer knows, every cached page
# of the list is stale: they are dropped, and a list that is read as a whole starts once more. An iterator cannot start again,
# as it has handed out items, so there the error reaches the caller.
#
# `read_all` closes the generator that it reads from: Python would only do so when the garbage collector finds it, in another
# task.

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

from ..errors import LimitExceeded, PeerError
from ..protocol.jsonrpc import INVALID_PARAMS
from ..types import (
    CacheableResult,
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
from .repeats import request_safely

T = TypeVar("T")

MAX_ITEMS = 100_000
"""Items that a list may have when it is read as a whole; an iterator over it has no such limit."""

MAX_PAGES = 1000
"""Pages that are read before the client assumes that the list never ends."""


@dataclass(frozen=True, slots=True)
class ListKind(Generic[T]):
    """One of the lists that a server may have: the method that requests a page, and the member of a page that has its items."""

    method: str
    member: str

    def items(self, page: PaginatedResult) -> list[T]:
        """Return what a page lists."""
        return cast("list[T]", getattr(page, self.member))


TOOLS: ListKind[Tool] = ListKind("tools/list", "tools")
PROMPTS: ListKind[Prompt] = ListKind("prompts/list", "prompts")
RESOURCES: ListKind[Resource] = ListKind("resources/list", "resources")
RESOURCE_TEMPLATES: ListKind[ResourceTemplate] = ListKind("resources/templates/list", "resource_templates")


class RejectedCursor(PeerError):
    """The server rejected the cursor of a cached page; all cached pages of the list were invalidated (M-CACHE-2c)."""


@dataclass(slots=True, eq=False)
class Lists:
    """Reads the lists of one server."""

    _link: Link
    _cache: CacheView
    _tools: ListedTools

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
        """Yield the items one by one. A page is requested when the one before is used up, and may take `timeout` seconds.

        Raises:
            LimitExceeded: there are more than `MAX_PAGES`.
            RejectedCursor: a cached page had a stale cursor.
        """
        cursor, is_cached = None, False
        for _ in range(MAX_PAGES):
            page, is_cached = await self._fetch(kind.method, cursor, timeout, is_cached)
            for item in kind.items(self._usable(page)):
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return
        raise LimitExceeded(f"{kind.method} has more than {MAX_PAGES} pages, which is the limit")

    async def refresh_tools(self) -> None:
        """List the tools again, to learn which of their arguments are repeated in headers."""
        self._cache.invalidate(TOOLS.method)
        await self.read_all(TOOLS)

    async def _collect(self, kind: ListKind[T]) -> list[T]:
        collected: list[T] = []
        async with aclosing(self.items(kind)) as items:
            async for item in items:
                collected.append(item)
                if len(collected) > MAX_ITEMS:
                    raise LimitExceeded(
                        f"{kind.method} has more than {MAX_ITEMS} items, which is the limit; read it item by item"
                    )
        return collected

    async def _fetch(
        self, method: str, cursor: str | None, timeout: float, after_cached: bool
    ) -> tuple[PaginatedResult, bool]:
        """Return one page, and whether it came from the cache."""
        cached = self._cache.find(method, cursor)
        if isinstance(cached, PaginatedResult):
            return cached, True
        # Taken before the request: a change that is announced while it is under way makes the page stale.
        ticket = self._cache.ticket()
        try:
            page = await request_safely(self._link, method, PaginatedRequestParams(cursor=cursor), timeout)
        except PeerError as error:
            if cursor is not None and error.code == INVALID_PARAMS:
                self._cache.invalidate(method)
                # Without a cached page before it, the server rejected a cursor that it has just given out: its own mistake.
                if after_cached:
                    raise RejectedCursor(error.code, error.message, error.data) from None
            raise
        assert isinstance(page, PaginatedResult)
        assert isinstance(page, CacheableResult)
        self._cache.store(method, cursor, page, ticket)
        return page, False

    def _usable(self, page: PaginatedResult) -> PaginatedResult:
        """Return the page without the tools that this client must not offer, and remember the others.

        Cached pages pass through here too: another client of the same cache may have stored them.
        """
        if not isinstance(page, ListToolsResult):
            return page
        return page.model_copy(update={"tools": self._tools.add(page.tools, self._link.dialect)})
