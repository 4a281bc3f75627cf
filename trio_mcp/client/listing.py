"""The lists of a server, as a client's methods."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from functools import partial
from typing import TypeVar

from ..checks import check_seconds
from ..types import Prompt, Resource, ResourceTemplate, Tool
from .lists import PROMPTS, RESOURCE_TEMPLATES, RESOURCES, TOOLS, ListKind, Lists
from .timeouts import run_with_timeout

T = TypeVar("T")


class Listing:
    """Base of `Client`: reads lists, whole or page by page."""

    _lists: Lists

    async def list_tools(self, *, timeout: float = math.inf) -> list[Tool]:
        """Return every tool that the server offers, from all pages.

        Raises `PeerError` with code -32601 if the server does not offer tools. The other lists do the same.
        """
        return await self._read_all(TOOLS, timeout)

    async def list_prompts(self, *, timeout: float = math.inf) -> list[Prompt]:
        """Return every prompt."""
        return await self._read_all(PROMPTS, timeout)

    async def list_resources(self, *, timeout: float = math.inf) -> list[Resource]:
        """Return every resource that has a fixed URI."""
        return await self._read_all(RESOURCES, timeout)

    async def list_resource_templates(self, *, timeout: float = math.inf) -> list[ResourceTemplate]:
        """Return every resource template."""
        return await self._read_all(RESOURCE_TEMPLATES, timeout)

    def iter_tools(self, *, timeout: float = math.inf) -> AsyncGenerator[Tool]:
        """Iterate over the tools. Each page is requested when the previous one has been read; `timeout` is per page."""
        return self._items(TOOLS, timeout)

    def iter_prompts(self, *, timeout: float = math.inf) -> AsyncGenerator[Prompt]:
        """Iterate over the prompts, page by page like `iter_tools`."""
        return self._items(PROMPTS, timeout)

    def iter_resources(self, *, timeout: float = math.inf) -> AsyncGenerator[Resource]:
        """Iterate over the resources, page by page like `iter_tools`."""
        return self._items(RESOURCES, timeout)

    def iter_resource_templates(self, *, timeout: float = math.inf) -> AsyncGenerator[ResourceTemplate]:
        """Iterate over the resource templates, page by page like `iter_tools`."""
        return self._items(RESOURCE_TEMPLATES, timeout)

    def _items(self, kind: ListKind[T], timeout: float) -> AsyncGenerator[T]:
        check_seconds("timeout", timeout)
        return self._lists.items(kind, timeout)

    async def _read_all(self, kind: ListKind[T], timeout: float) -> list[T]:
        return await run_with_timeout(timeout, kind.method, partial(self._lists.read_all, kind))
