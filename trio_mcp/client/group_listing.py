"""The lists of a group, as its methods."""

from __future__ import annotations

from typing import Final

from ..checks import check_seconds
from ..types import Prompt, Resource, ResourceTemplate, Tool
from .client import Client
from .group_lists import GroupLists, GroupTool
from .tool_filter import ToolFilter, ToolSelection

LIST_TIMEOUT: Final = 60.0
"""Seconds that a server may take to list what it has, before its items are left out."""


class GroupListing:
    """Base of `ClientGroup`: what its servers offer, in one list of each kind."""

    _lists: GroupLists

    async def list_tools(
        self,
        *,
        only: ToolSelection | None = None,
        without: ToolSelection | None = None,
        timeout: float = LIST_TIMEOUT,
    ) -> list[Tool]:
        """Return the tools of all servers that can be reached, under their names in the group.

        Args:
            only, without: leave out more tools, as for the group; they can still be called.
            timeout: seconds that each server may take. One that takes longer, or fails, is left out with a warning in the log.

        The other lists do the same.
        """
        filter = ToolFilter(only, without)
        tools = [tool.renamed for tool in await self.list_tools_by_server(timeout=timeout)]
        return [tool for tool in tools if filter.allows(tool)]

    async def list_tools_by_server(self, *, timeout: float = LIST_TIMEOUT) -> list[GroupTool]:
        """Return the tools of all servers that can be reached, each with its server and with the name that it has there."""
        return await self._lists.tools(check_seconds("timeout", timeout))

    async def list_prompts(self, *, timeout: float = LIST_TIMEOUT) -> list[Prompt]:
        """Return the prompts of all servers, under their names in the group."""
        return await self._lists.read("prompt", "prompts", Client.list_prompts, check_seconds("timeout", timeout))

    async def list_resources(self, *, timeout: float = LIST_TIMEOUT) -> list[Resource]:
        """Return the resources of all servers, with their URIs in the group."""
        seconds = check_seconds("timeout", timeout)
        return await self._lists.read("resource", "resources", Client.list_resources, seconds)

    async def list_resource_templates(self, *, timeout: float = LIST_TIMEOUT) -> list[ResourceTemplate]:
        """Return the resource templates of all servers, with their URIs in the group."""
        seconds = check_seconds("timeout", timeout)
        return await self._lists.read("resource template", "resources", Client.list_resource_templates, seconds)
