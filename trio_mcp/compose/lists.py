"""What the servers of a group offer, in one list, and which of them a name belongs to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Final, TypeVar

import trio

from ..base.checks import check_seconds, check_str, nearest
from ..base.logs import RepeatedRecords, peer_logger
from ..base.named_tuples import NamedTuple
from ..base.unawaited import unawaited
from ..client.client import Client
from ..client.requester import run_with_timeout
from ..errors import McpError, ServerUnavailable
from ..session.dropped_items import LeftOut, by_key
from ..session.event_loop import works_on_asyncio
from ..types import Model, Prompt, Resource, ResourceTemplate, Tool
from ..types.capabilities import declares
from .agent_tools import read_tools
from .connection import ServerStatus
from .member import Member
from .names import ToolFilter, ToolSelection, longest_first, shown

M = TypeVar("M", bound=Model)

logger = peer_logger("trio_mcp.client")

MEMBERS: Final[Mapping[str, str]] = {
    "tool": "name",
    "prompt": "name",
    "resource": "uri",
    "resource template": "uri_template",
}
"""What tells the items of a kind apart."""


class GroupTool(NamedTuple):
    """A tool of a server of a group.

    Attributes:
        server: the name of the server in the group.
        tool: as the server lists it.
        name: in the group.
    """

    server: str
    tool: Tool
    name: str

    @property
    def renamed(self) -> Tool:
        """The tool under its name in the group."""
        return self.tool if self.tool.name == self.name else self.tool.model_copy(update={"name": self.name})


@dataclass(slots=True, eq=False)
class GroupLists:
    """The lists of all servers of a group.

    Args:
        connections: by the names of the servers.
        filter: of the tools, by their names in the group.
    """

    connections: Mapping[str, Member]
    filter: ToolFilter
    _records: RepeatedRecords = field(default_factory=lambda: RepeatedRecords(logger, lines=5))
    _listed: dict[Member, dict[str, Tool]] = field(default_factory=dict[Member, dict[str, Tool]])
    """The tools that each server listed last, by its own names."""
    _left_out: dict[Member, LeftOut] = field(init=False)
    _search: list[Member] = field(init=False)
    """In the order in which a name is looked for: a name belongs to the longest prefix that begins it."""

    def __post_init__(self) -> None:
        spaces = {name: connection.space for name, connection in self.connections.items()}
        self._search = [self.connections[name] for name in longest_first(spaces)]
        self._left_out = {each: LeftOut(logger, each.whose) for each in self._search}

    async def tools(self, timeout: float) -> list[GroupTool]:
        """Return the tools of all servers that can be reached."""
        found: list[GroupTool] = []
        every: list[str] = []
        for connection, tools in (await self._read("tools", read_tools, timeout)).items():
            placed = self._placed(connection, "tool", tools)
            self._listed[connection] = {tool.name: tool for tool, _ in placed}
            self._warn_of_unmatched(connection.filter if tools else ToolFilter(), self._listed[connection])
            every += [name for _, name in placed]
            named = [GroupTool(connection.name, tool, name) for tool, name in placed]
            found += [tool for tool in named if self._allows(connection, tool)]
        if all(connection.state.status is ServerStatus.CONNECTED for connection in self._search):
            self._warn_of_unmatched(self.filter, every)
        return found

    async def read(
        self, what: str, list_name: str, read: Callable[[Client], Awaitable[list[M]]], timeout: float
    ) -> list[M]:
        """Return what all servers that can be reached list of one kind, with the names of the group.

        Args:
            what: the kind, one of `MEMBERS`.
            list_name: of the list: "prompts" or "resources".
        """
        return [
            item.model_copy(update={MEMBERS[what]: name})
            for connection, items in (await self._read(list_name, read, timeout)).items()
            for item, name in self._placed(connection, what, items)
        ]

    # finding

    def by_name(self, name: str, what: str) -> tuple[Member, str]:
        """Return the server of a tool or prompt of the group, and its name there.

        Raises:
            LookupError: no server has the prefix.
        """
        check_str(f"the name of the {what}", name)
        found = self._owner(name, what)
        if found is None:
            raise LookupError(f"no server of the group has the {what} {name!r:.140}; {self._advice(name)}")
        return found

    def by_uri(self, uri: str) -> tuple[Member, str]:
        """Return the server of a resource of the group, and its URI there.

        Raises:
            LookupError: no server has the prefix.
        """
        check_str("the URI", uri)
        found = self._owner(uri, "resource")
        if found is not None:
            return found
        example = next(iter(self.connections.values())).space.outer_uri("config://app") if self.connections else ""
        advice = f"; its resources have URIs like {example!r}" if example else ""
        raise LookupError(f"no server of the group has the resource {uri!r:.140}{advice}")

    async def tool(self, name: str) -> tuple[Member, str]:
        """Return the server of a tool that may be called, and its name there.

        Raises:
            LookupError: no server has it, or it is filtered out.
        """
        connection, own = self.by_name(name, "tool")
        own_allowed = connection.filter.allows_name(own)
        allowed = self.filter.allows_name(name)
        if own_allowed and allowed:
            return connection, own
        if own_allowed is not False and allowed is not False:
            tool = await self._find_listed(connection, own)
            if tool is not None and self._allows(connection, GroupTool(connection.name, tool, name)):
                return connection, own
        raise LookupError(f"the tool {name!r:.140} is left out of this group by its filters")

    async def _find_listed(self, connection: Member, own: str) -> Tool | None:
        listed = self._listed.get(connection, {})
        if own not in listed:
            listed = by_key(await connection.ask(read_tools), attrgetter("name"), {})
            self._listed[connection] = listed
        return listed.get(own)

    # one step each

    async def _read(
        self, kind: str, read: Callable[[Client], Awaitable[list[M]]], timeout: float
    ) -> dict[Member, list[M]]:
        """Return the lists of the servers that can be reached, in the order of the connections."""
        listed: dict[Member, list[M]] = {connection: [] for connection in self.connections.values()}

        async def read_one(connection: Member) -> None:
            listed[connection] = await self._read_one(connection, kind, read, timeout)

        async with trio.open_nursery() as nursery:
            for connection in listed:
                # One that has been away for long would only be waited for.
                if connection.state.status is not ServerStatus.UNAVAILABLE:
                    nursery.start_soon(read_one, connection)
        return listed

    async def _read_one(
        self, connection: Member, kind: str, read: Callable[[Client], Awaitable[list[M]]], timeout: float
    ) -> list[M]:
        async def read_offered(client: Client) -> list[M]:
            return await read(client) if declares(client.server_capabilities, kind) else []

        try:
            return await run_with_timeout(timeout, f"{kind}/list", partial(connection.ask, read_offered))
        except ServerUnavailable:
            return []
        except McpError as error:
            # One server must not take the others down.
            self._records.log("the %s of %s could not be listed: %s", kind, connection.whose, error)
            return []

    def _owner(self, name: str, what: str) -> tuple[Member, str] | None:
        """Return the server that a name or URI of the group belongs to, and what that server calls it."""
        for connection in self._search:
            space = connection.space
            own = space.own_name(name) if MEMBERS[what] == "name" else space.own_uri(name)
            if own is not None:
                return connection, own
        return None

    def _placed(self, connection: Member, what: str, items: list[M]) -> list[tuple[M, str]]:
        """Return the items of a list of a server that calls reach there, with their names or URIs in the group; log the others.

        A server must not pass its items off as those of another.
        """
        space = connection.space
        reasons: dict[str, str] = {}
        placed: list[tuple[M, str]] = []
        for own, item in by_key(items, attrgetter(MEMBERS[what]), reasons).items():
            name = space.outer_name(own) if MEMBERS[what] == "name" else space.outer_uri(own)
            owner = self._owner(name, what)
            if owner == (connection, own):
                placed.append((item, name))
            elif owner is None:
                reasons[own] = "it has no scheme that is written out, such as notes://"
            else:
                reasons[own] = f"in the group, {name[:128]!r} belongs to the server {owner[0].name!r}"
        self._left_out[connection].note(what, reasons)
        return placed

    def _allows(self, connection: Member, tool: GroupTool) -> bool:
        return connection.filter.allows(tool.tool) and self.filter.allows(tool.renamed)

    def _warn_of_unmatched(self, filter: ToolFilter, names: Collection[str]) -> None:
        # Not an error: a server may have removed the tool since.
        for name in filter.unmatched(names):
            self._records.log("a filter of a group names the tool %s, which is not listed", name)

    def _advice(self, name: str) -> str:
        servers = [connection.name for connection in self.connections.values()]
        prefixes = [f"{connection.space.prefix}_" for connection in self.connections.values()]
        return nearest(name, prefixes) or f"its servers are {shown(servers)}"


# The lists of a group, as its methods.

LIST_TIMEOUT: Final = 60.0
"""Seconds that a server may take to list what it has, before its items are left out."""


class GroupListing:
    """Base of `ClientGroup`: what its servers offer, in one list of each kind."""

    _lists: GroupLists

    @unawaited("group.list_tools")
    @works_on_asyncio
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

    @unawaited("group.list_tools_by_server")
    @works_on_asyncio
    async def list_tools_by_server(self, *, timeout: float = LIST_TIMEOUT) -> list[GroupTool]:
        """Return the tools of all servers that can be reached, each with its server and with the name that it has there."""
        return await self._lists.tools(check_seconds("timeout", timeout))

    @unawaited("group.list_prompts")
    @works_on_asyncio
    async def list_prompts(self, *, timeout: float = LIST_TIMEOUT) -> list[Prompt]:
        """Return the prompts of all servers, under their names in the group."""
        return await self._lists.read("prompt", "prompts", Client.list_prompts, check_seconds("timeout", timeout))

    @unawaited("group.list_resources")
    @works_on_asyncio
    async def list_resources(self, *, timeout: float = LIST_TIMEOUT) -> list[Resource]:
        """Return the resources of all servers, with their URIs in the group."""
        seconds = check_seconds("timeout", timeout)
        return await self._lists.read("resource", "resources", Client.list_resources, seconds)

    @unawaited("group.list_resource_templates")
    @works_on_asyncio
    async def list_resource_templates(self, *, timeout: float = LIST_TIMEOUT) -> list[ResourceTemplate]:
        """Return the resource templates of all servers, with their URIs in the group."""
        seconds = check_seconds("timeout", timeout)
        return await self._lists.read("resource template", "resources", Client.list_resource_templates, seconds)
