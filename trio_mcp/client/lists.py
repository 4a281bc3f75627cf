"""Reading lists page by page, from the cache where that has the page."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar, cast

from ..base.checks import check_seconds
from ..base.logs import RepeatedRecords, peer_logger
from ..base.unawaited import unawaited
from ..errors import LimitExceeded, LocalProtocolError, PeerError, RemoteProtocolError
from ..protocol.codec.models import Dropped
from ..protocol.http.headers import ParameterHeaders
from ..protocol.jsonrpc import INVALID_PARAMS
from ..protocol.schema.json_schema import Schema
from ..session.client import NO_HEADERS
from ..session.dropped_items import DroppedMembers
from ..session.event_loop import iterates_on_asyncio, works_on_asyncio
from ..types import (
    CacheableResult,
    CallToolResult,
    JsonObject,
    ListToolsResult,
    PaginatedRequestParams,
    PaginatedResult,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
)
from .cache import CacheView
from .dialects import Dialect
from .link import Link
from .requester import request_safely, run_with_timeout

# The listed tools as calls need them: which arguments are repeated in headers, and the schemas of their results.
#
# Arguments are repeated in headers since 2026-07-28 (`x-mcp-header`: M-HTTP-6, M-HTTP-7c). Structured content is validated
# against the output schema in every revision (L-TOOL-6c).

# A client does not list the tools before a call, since a program may know the tool's name from elsewhere. So a tool that was not
# listed is called without headers and its result is not validated: the server rejects missing headers, and `Calls` then lists
# the tools and tries again.
#
# One mapping holds only the tools that need anything at all. Most have neither headers nor an output schema, and calling them
# costs one failed lookup.


logger = peer_logger("trio_mcp.client")

MAX_TOOLS = 10_000
"""Tools that are stored. One above the limit counts as not listed."""


@dataclass(slots=True, eq=False)
class ListedTool:
    """The headers and the output schema of one tool."""

    _name: str
    _headers: ParameterHeaders | None
    # Compiled when the first result is validated: a list may have thousands of schemas, and a program calls few tools.
    _schema: JsonObject | Schema | None
    _records: RepeatedRecords

    def headers(self, arguments: JsonObject) -> Mapping[str, str]:
        """Return the headers of a call with these arguments.

        Raises:
            LocalProtocolError: a header cannot carry one of the arguments.
        """
        if self._headers is None:
            return NO_HEADERS
        try:
            return self._headers.headers(arguments)
        except ValueError as error:
            raise LocalProtocolError(str(error)) from None

    def check_result(self, result: CallToolResult, *, quick: bool) -> None:
        """Validate the structured content of a result; an error result need not have any.

        Raises:
            RemoteProtocolError: it is missing or breaks the output schema; the message says where.
            CheckTooExpensive: see `Schema.quick_check`, which is used if the check is to be `quick`.
        """
        schema = None if result.is_error else self._compiled()
        if schema is None:
            return
        if "structured_content" not in result.model_fields_set:
            raise RemoteProtocolError(f"the tool {self._name} must send structured content, and sent none")
        problem = (schema.quick_check if quick else schema.check)(result.structured_content, "structuredContent")
        if problem is not None:
            raise RemoteProtocolError(f"the tool {self._name} sent content that breaks its output schema: {problem}")

    def _compiled(self) -> Schema | None:
        if isinstance(self._schema, dict):
            try:
                self._schema = Schema.compile(self._schema, "outputSchema")
            except ValueError as error:
                # The server's mistake. The content is usable all the same, so the call does not fail.
                self._records.log("the results of the tool %s are not validated: %s", self._name, error)
                # Removed, so that it is logged once.
                self._schema = None
        return self._schema


class HarmlessTools:
    """The names of tools that were listed as ones that do no more when they run twice, the one listed longest ago first."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, None] = OrderedDict()

    def note(self, name: str, *, is_harmless: bool) -> None:
        """Note a tool as it was listed now."""
        self._names.pop(name, None)
        if is_harmless:
            self._names[name] = None
            if len(self._names) > MAX_TOOLS:
                self._names.popitem(last=False)

    def __contains__(self, name: object) -> bool:
        return name in self._names


class ListedTools:
    """The tools of one server, as they were last listed.

    Args:
        dropped: remembers those that a client may not offer.

    Attributes:
        by_name: the tools with headers or an output schema, the one that was listed longest ago first.
        task_support: which tools may, or must, run as tasks ("optional", "required"); those that may not are left out.
    """

    def __init__(self, dropped: DroppedMembers) -> None:
        self._dropped = dropped
        self.by_name: OrderedDict[str, ListedTool] = OrderedDict()
        self.task_support: OrderedDict[str, str] = OrderedDict()
        self._without_headers: OrderedDict[str, None] = OrderedDict()
        self._harmless = HarmlessTools()
        self._records = RepeatedRecords(logger)

    def add(self, tools: Sequence[Tool], dialect: Dialect) -> list[Tool]:
        """Store these tools, and return those that a client may offer; the others are logged."""
        return [tool for tool in tools if self._add(tool, dialect)]

    def is_harmless(self, name: str) -> bool:
        """Return whether a tool was listed as one that does no more when it runs twice."""
        return name in self._harmless

    def _add(self, tool: Tool, dialect: Dialect) -> bool:
        # Also if nothing is stored for it now: the tool may have had headers when it was listed before.
        self.by_name.pop(tool.name, None)
        self._without_headers.pop(tool.name, None)
        hints = tool.annotations
        is_harmless = hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
        self._harmless.note(tool.name, is_harmless=is_harmless)
        self._note_task_support(tool)
        headers, valid = None, True
        try:
            headers = dialect.parameter_headers(tool)
        except ValueError as error:
            self._dropped.add([Dropped("tool", tool.name, str(error))])
            valid = False
        if headers or tool.output_schema is not None:
            self.by_name[tool.name] = ListedTool(tool.name, headers, tool.output_schema, self._records)
            if not headers:
                self._without_headers[tool.name] = None
            if len(self.by_name) > MAX_TOOLS:
                self._evict()
        return valid

    def _note_task_support(self, tool: Tool) -> None:
        self.task_support.pop(tool.name, None)
        support = None if tool.execution is None else tool.execution.task_support
        if support is not None and support != "forbidden":
            self.task_support[tool.name] = support
            if len(self.task_support) > MAX_TOOLS:
                self.task_support.popitem(last=False)

    def _evict(self) -> None:
        # A tool without headers only loses its validation. One with headers could not be called: the server rejects the
        # call, and the list that is fetched then would evict it again.
        if self._without_headers:
            name, _ = self._without_headers.popitem(last=False)
            del self.by_name[name]
        else:
            self.by_name.popitem(last=False)


# A cursor belongs to one version of the list. If a cached page has a cursor that the server no longer knows, every cached page
# of the list is stale: they are dropped, and a list that is read as a whole starts once more. An iterator cannot start again,
# as it has handed out items, so there the error reaches the caller.
#
# `read_all` closes the generator that it reads from: Python would only do so when the garbage collector finds it, in another
# task.


T = TypeVar("T")

MAX_ITEMS = 100_000
"""Items that a list may have when it is read as a whole; an iterator over it has no such limit."""

MAX_PAGES = 1000
"""Pages that are read before the client assumes that the list never ends."""

MAX_LIST: Final = 64 * 1024 * 1024
"""Bytes of the pages after the first of a list that is read as a whole, which are held at once."""
READ_SINGLY: Final = "which is the limit; read it item by item"


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
    _records: RepeatedRecords = field(default_factory=partial(RepeatedRecords, logger))

    async def read_all(self, kind: ListKind[T]) -> list[T]:
        """Return all items of all pages.

        Raises:
            LimitExceeded: there are more than `MAX_ITEMS`, or than `MAX_LIST` bytes.
        """
        try:
            return await self._collect(kind)
        except RejectedCursor:
            pass
        # Not in a loop: if another task caches a stale page meanwhile, the server changes its list faster than it can be read.
        return await self._collect(kind)

    async def items(
        self, kind: ListKind[T], timeout: float = math.inf, max_bytes: float = math.inf
    ) -> AsyncGenerator[T]:
        """Yield the items one by one. A page is requested when the one before is used up, and may take `timeout` seconds.

        Raises:
            LimitExceeded: there are more than `MAX_PAGES`, or than `max_bytes` after the first. A cursor that came before
                ends the list, with a warning.
            RejectedCursor: a cached page had a stale cursor.
        """
        cursor, is_cached, before, size = None, False, None, 0
        # Hashes: a cursor may be as long as a page.
        seen: set[int] = set()
        for _ in range(MAX_PAGES):
            page, is_cached = await self._fetch(kind.method, cursor, timeout, is_cached)
            size += 0 if cursor is None or max_bytes == math.inf else len(page.encode())
            if size > max_bytes:
                raise LimitExceeded(f"{kind.method} has more than {max_bytes} bytes, {READ_SINGLY}")
            items = kind.items(self._usable(page))
            # A server that does not know cursors sends its first page again.
            if cursor is None or cursor != page.next_cursor or items != before:
                for item in items:
                    yield item
            cursor, before = page.next_cursor, items
            if cursor is None:
                return
            if hash(cursor) in seen:
                self._records.log("%s: the server has sent the cursor %.80r before; the list ends", kind.method, cursor)
                return
            seen.add(hash(cursor))
        raise LimitExceeded(f"{kind.method} has more than {MAX_PAGES} pages, which is the limit")

    async def refresh_tools(self) -> None:
        """List the tools again, to learn which of their arguments are repeated in headers."""
        self._cache.invalidate(TOOLS.method)
        await self.read_all(TOOLS)

    async def _collect(self, kind: ListKind[T]) -> list[T]:
        collected: list[T] = []
        async with aclosing(self.items(kind, max_bytes=MAX_LIST)) as items:
            async for item in items:
                collected.append(item)
                if len(collected) > MAX_ITEMS:
                    raise LimitExceeded(f"{kind.method} has more than {MAX_ITEMS} items, {READ_SINGLY}")
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


# The lists of a server, as a client's methods.


class Listing:
    """Base of `Client`: reads lists, whole or page by page."""

    _lists: Lists

    @unawaited("client.list_tools")
    @works_on_asyncio
    async def list_tools(self, *, timeout: float = math.inf) -> list[Tool]:
        """Return every tool that the server offers, from all pages.

        Raises `PeerError` with code -32601 if the server does not offer tools. The other lists do the same.
        """
        return await self._read_all(TOOLS, timeout)

    @unawaited("client.list_prompts")
    @works_on_asyncio
    async def list_prompts(self, *, timeout: float = math.inf) -> list[Prompt]:
        """Return every prompt."""
        return await self._read_all(PROMPTS, timeout)

    @unawaited("client.list_resources")
    @works_on_asyncio
    async def list_resources(self, *, timeout: float = math.inf) -> list[Resource]:
        """Return every resource that has a fixed URI."""
        return await self._read_all(RESOURCES, timeout)

    @unawaited("client.list_resource_templates")
    @works_on_asyncio
    async def list_resource_templates(self, *, timeout: float = math.inf) -> list[ResourceTemplate]:
        """Return every resource template."""
        return await self._read_all(RESOURCE_TEMPLATES, timeout)

    @iterates_on_asyncio
    def iter_tools(self, *, timeout: float = math.inf) -> AsyncGenerator[Tool]:
        """Iterate over the tools. Each page is requested when the previous one has been read; `timeout` is per page."""
        return self._items(TOOLS, timeout)

    @iterates_on_asyncio
    def iter_prompts(self, *, timeout: float = math.inf) -> AsyncGenerator[Prompt]:
        """Iterate over the prompts, page by page like `iter_tools`."""
        return self._items(PROMPTS, timeout)

    @iterates_on_asyncio
    def iter_resources(self, *, timeout: float = math.inf) -> AsyncGenerator[Resource]:
        """Iterate over the resources, page by page like `iter_tools`."""
        return self._items(RESOURCES, timeout)

    @iterates_on_asyncio
    def iter_resource_templates(self, *, timeout: float = math.inf) -> AsyncGenerator[ResourceTemplate]:
        """Iterate over the resource templates, page by page like `iter_tools`."""
        return self._items(RESOURCE_TEMPLATES, timeout)

    def _items(self, kind: ListKind[T], timeout: float) -> AsyncGenerator[T]:
        check_seconds("timeout", timeout)
        return self._lists.items(kind, timeout)

    async def _read_all(self, kind: ListKind[T], timeout: float) -> list[T]:
        return await run_with_timeout(timeout, kind.method, partial(self._lists.read_all, kind))
