"""Reading lists page by page."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

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
from .mirrors import Mirrors
from .promises import Promises

T = TypeVar("T")

MAX_ITEMS = 100_000
"""Items of a list that are read at once; its iterator goes on for as long as there are pages."""

MAX_PAGES = 1000
"""Pages of a list that are read before a server is taken to go on for ever."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """One of the lists a server may have; `items` takes what is listed out of a page."""

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


TOOLS = Listing("tools/list", tools_of)
PROMPTS = Listing("prompts/list", prompts_of)
RESOURCES = Listing("resources/list", resources_of)
RESOURCE_TEMPLATES = Listing("resources/templates/list", templates_of)


class RejectedCursor(Exception):
    """The server refused a cursor that a kept page gave: all kept pages were dropped (M-CACHE-2c)."""

    def __init__(self, error: PeerError) -> None:
        super().__init__(str(error))
        self.error = error


class Lists:
    """The lists of one server, as a client reads them; pages that may be kept come from the cache."""

    def __init__(self, link: Link, cache: CacheView, mirrors: Mirrors, promises: Promises) -> None:
        self._link = link
        self._cache = cache
        self._mirrors = mirrors
        self._promises = promises

    async def whole(self, listing: Listing[T]) -> list[T]:
        """Everything through all pages, and once more from the start when a kept page led nowhere."""
        try:
            return await self._collect(listing)
        except RejectedCursor:
            pass
        try:
            return await self._collect(listing)
        except RejectedCursor as rejected:  # somebody else kept a page meanwhile
            raise rejected.error from None

    async def items(self, listing: Listing[T], timeout: float = math.inf) -> AsyncGenerator[T]:
        """The items one by one; a page is asked for when those before it are used up, within `timeout` seconds."""
        reading = Reading(self, listing, timeout)
        try:
            while (page := await reading.page()) is not None:
                for item in page:
                    yield item
        except RejectedCursor as rejected:
            raise rejected.error from None

    async def refresh_tools(self) -> None:
        """Read the tools from the server, and with them which of their arguments headers repeat."""
        self._cache.drop(TOOLS.method)
        await self.whole(TOOLS)

    async def fetch(self, method: str, cursor: str | None, timeout: float, after_kept: bool) -> Fetched:
        """One page."""
        found = self._cache.find(method, cursor)
        if isinstance(found, PaginatedResult):
            return Fetched(found, kept=True)
        ticket = self._cache.ticket()
        try:
            page = await self._link.request(method, PaginatedRequestParams(cursor=cursor), timeout=timeout)
        except PeerError as error:
            if cursor is not None and error.code == INVALID_PARAMS:
                self._cache.drop(method)
                if after_kept:
                    raise RejectedCursor(error) from None
            raise
        assert isinstance(page, PaginatedResult)
        assert isinstance(page, CacheableResult)
        self._cache.keep(method, cursor, page, ticket)
        return Fetched(page, kept=False)

    def usable(self, page: PaginatedResult) -> PaginatedResult:
        """The page without the tools that a modern client must not offer (S-57)."""
        if not isinstance(page, ListToolsResult):
            return page
        self._promises.learn(page.tools)
        if not self._link.session.modern:
            return page
        return page.model_copy(update={"tools": self._mirrors.learn(page.tools)})

    async def _collect(self, listing: Listing[T]) -> list[T]:
        reading = Reading(self, listing, math.inf)
        items: list[T] = []
        while (page := await reading.page()) is not None:
            items += page
            if len(items) > MAX_ITEMS:
                raise LimitExceeded(
                    f"{listing.method} has more than {MAX_ITEMS} items, which is the limit; read it item by item"
                )
        return items


class Fetched(NamedTuple):
    """A page, and whether it was kept here."""

    page: PaginatedResult
    kept: bool


class Reading(Generic[T]):
    """How far one reader of a list has come."""

    def __init__(self, lists: Lists, listing: Listing[T], timeout: float) -> None:
        self._lists = lists
        self._listing = listing
        self._timeout = timeout
        self._cursor: str | None = None
        self._pages = 0
        self._kept = False

    async def page(self) -> list[T] | None:
        """What the next page lists; None after the last.

        Raises:
            LimitExceeded: the server goes on for ever.
            RejectedCursor: see there.
        """
        if self._pages and self._cursor is None:
            return None
        if self._pages >= MAX_PAGES:
            raise LimitExceeded(f"{self._listing.method} has more than {MAX_PAGES} pages, which is the limit")
        page, self._kept = await self._lists.fetch(self._listing.method, self._cursor, self._timeout, self._kept)
        self._pages += 1
        self._cursor = page.next_cursor
        return self._listing.items(self._lists.usable(page))
