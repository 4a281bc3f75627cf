"""`ClientGroup`: several servers in one client."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeVar, Unpack, cast, overload

import trio

from ..base.checks import check_callable, check_seconds, check_sync_callback, nearest
from ..base.logs import RepeatedRecords, peer_logger
from ..base.unawaited import unawaited
from ..client.changes import Changes, subscription_filter
from ..client.client import Client
from ..client.options import CallKeywords, ConnectKeywords, call_options
from ..client.requester import run_with_timeout
from ..errors import Disconnected, OutcomeUnknown
from ..mcp_json import read_mcp_json
from ..session.event_loop import works_on_asyncio
from ..session.subscriptions import Change
from ..types import (
    CallToolResult,
    Completion,
    GetPromptResult,
    PromptReference,
    ReadResourceResult,
    Reference,
)
from .changes import GroupListeners, GroupTasks
from .connection import ServerState
from .lists import GroupListing, GroupLists
from .member import Member
from .names import ToolFilter, shown
from .servers import OF_GROUPS, AnyGroupServer, GroupKeywords, as_group_servers, members_of

# Tasks, each the child of the one above it:
#
#   GroupTasks._main             a system task, so that a group may be opened in one task and closed in another, as a client may
#     +- Connection.keep         one for each server: connects, and again when the server was lost
#     +- GroupListeners._run     one for each subscriber
#
# Which server a call is for follows from its name alone (`namespaces`), so a call needs nothing of the other servers.


T = TypeVar("T")

logger = peer_logger("trio_mcp.client")

OPEN_TIMEOUT: Final = 30.0
"""Seconds that one attempt to connect to a server may take, and so the opening of the group."""


class ClientGroup(GroupListing):
    """Several servers in one client, under names that tell them apart.

        async with ClientGroup({"files": ["python", "files.py"], "weather": "https://example.org/mcp"}) as group:
            tools = await group.list_tools()
            result = await group.call_tool("files_read", {"path": "notes.txt"})

    A tool or prompt of a server has the name `server_name` here, and a resource the URI `scheme://server/rest`. `group["files"]`
    is the client of one server, and takes the server's own names.

    A server that cannot be reached does not affect the others: the lists omit it, and calls to it raise `ServerUnavailable`,
    while the group keeps trying to connect, with growing delays. `states` and `on_state` report the state of each server. The
    group reopens a lost connection at once, with its subscriptions; calls wait for that, and are sent again only where `Client`
    does so.

    Results are returned as the server sent them: a link in a result has the server's own URI, which `uri_of` translates.

    The group may be opened in one task and closed in another.
    """

    def __init__(
        self,
        servers: Mapping[str, AnyGroupServer],
        **options: Unpack[GroupKeywords],
    ) -> None:
        """Make a group; nothing is started before it is opened.

        Args:
            servers: what to connect to, by the names of the servers: what `Client.connect` takes, a `GroupServer` with options,
                or a server of a host's file (`trio_mcp.mcp_json`).
            only: the tools to use, by their names in the group; `*` and `?` stand for any characters. Or a function that returns
                whether a tool is used. The others are neither listed nor called.
            without: the tools not to use, in the same way.
            for_server: returns more options for the server of a name, such as handlers that say which server asks.
            on_state: a plain function, called with each new state of a server.
            on_change: a plain function, called with each change of the lists of the group.
            open_timeout: seconds that each attempt to connect to a server may take; 30 by default.
            options: keyword arguments of `Client.connect`, for all servers.

        Raises:
            ConfigurationError: two servers have the same prefix.
            TypeError, ValueError: an argument is invalid.
        """
        self._on_state_given = options.get("on_state")
        self._on_change_given = options.get("on_change")
        for name, callback in (("on_state", self._on_state_given), ("on_change", self._on_change_given)):
            if callback is not None:
                check_sync_callback(name, callback)
        for_server = options.get("for_server")
        if for_server is not None:
            check_callable("for_server", for_server)
        self._records = RepeatedRecords(logger)
        seconds = check_seconds("open_timeout", options.get("open_timeout", OPEN_TIMEOUT), positive=True)
        of_clients = {name: value for name, value in options.items() if name not in OF_GROUPS}
        made = members_of(
            as_group_servers(servers),
            cast("ConnectKeywords", of_clients),
            for_server,
            seconds,
            self._on_state,
            self._on_change,
        )
        self._connections = {member.name: member for member in made}
        self._tasks = GroupTasks(self._connections.values())
        self._lists = GroupLists(self._connections, ToolFilter(options.get("only"), options.get("without")))
        self._listeners = GroupListeners(self._lists.by_uri, lambda: self._tasks.nursery)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        servers: Collection[str] | None = None,
        variables: Mapping[str, str] | None = None,
        **options: Unpack[GroupKeywords],
    ) -> Self:
        """Return a group of the servers in a host's file, such as `mcp.json`, without those that the file disables.

        What the file has that means nothing here is logged as a warning.

        Args:
            servers: the names of those to use; all by default.
            variables: what `${NAME}` in the file stands for; a name that is not in it is looked up in the environment.

        The other arguments are those of the class.

        Raises:
            OSError: the file cannot be read.
            ConfigurationError: it is no such file, or what it says of a server is wrong; the message names each of them.
        """
        file = read_mcp_json(path, variables=variables)
        for warning in file.warnings:
            logger.warning("%s", warning)
        if servers is None:
            file.check()
            chosen = dict(file.servers)
        else:
            chosen = {name: file.server(name) for name in servers}
        return cls(chosen, **options)

    # life

    @works_on_asyncio
    async def open(self) -> Self:
        """Connect to all servers, wait until each was tried once, and return the group; `async with` calls this.

        A server that cannot be reached raises nothing. A cancel closes the group.
        """
        await self._tasks.open()
        return self

    @works_on_asyncio
    async def aclose(self) -> None:
        """Close the connections to all servers. May be called from any task and more than once; ends in bounded time."""
        self._listeners.end(Disconnected("the group was closed"))
        await self._tasks.aclose()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # servers

    @property
    def _opened_in(self) -> trio.lowlevel.TrioToken | None:
        """The Trio run in which it is open, and in which alone it can be used."""
        return self._tasks.opened_in

    @property
    def states(self) -> Mapping[str, ServerState]:
        """The state of each server, by its name."""
        return MappingProxyType({name: connection.state for name, connection in self._connections.items()})

    def __getitem__(self, server: str) -> Client:
        """Return the client of a server, which takes the server's own names.

        The group replaces a client that cannot reconnect, as when the server has changed its era. So look it up each time.

        Raises:
            KeyError: the group has no such server.
            ServerUnavailable: it was never connected.
        """
        connection = self._connection(server)
        if connection.current is None:
            raise connection.unavailable()
        return connection.current

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the servers."""
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    def __contains__(self, server: object) -> bool:
        return server in self._connections

    @unawaited("group.wait_connected")
    @works_on_asyncio
    async def wait_connected(self, server: str, *, timeout: float = math.inf) -> Client:
        """Wait until a server is connected, and return its client.

        Raises:
            KeyError: the group has no such server.
            RequestTimeout: it took longer than `timeout` seconds.
            Disconnected: the group is not open.
        """
        connection = self._connection(server)
        return await run_with_timeout(timeout, f"connecting to {server!r}", partial(self._until_connected, connection))

    def name_of(self, server: str, name: str) -> str:
        """Return the name in the group of a tool or prompt that the server calls `name`. Raises `KeyError`."""
        return self._connection(server).space.outer_name(name)

    def uri_of(self, server: str, uri: str) -> str:
        """Return the URI in the group of a resource that the server has at `uri`, such as that of a link. Raises `KeyError`."""
        return self._connection(server).space.outer_uri(uri)

    # calls

    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        raise_on_error: bool = False,
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> CallToolResult: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        returns: type[T],
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> T: ...
    @overload
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        returns: object,
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> object: ...
    @unawaited("group.call_tool")
    @works_on_asyncio
    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        returns: object = None,
        raise_on_error: bool = False,
        task: bool = False,
        **options: Unpack[CallKeywords],
    ) -> object:
        """Call a tool by its name in the group, and return its result. The arguments are those of `Client.call_tool`.

        While the server is being connected to again, the call waits for it, within its `timeout`.

        Raises:
            LookupError: no server has the prefix of this name, or the tool is filtered out.
            ServerUnavailable: the server cannot be reached.
            OutcomeUnknown: the connection was lost, and the tool may or may not have run.

        Errors of the server are those of `Client.call_tool`, with a note that names the server.
        """

        async def call(client: Client) -> object:
            try:
                if returns is not None:
                    return await client.call_tool(own, arguments, returns=returns, task=task, **options)
                return await client.call_tool(own, arguments, raise_on_error=raise_on_error, task=task, **options)
            except OutcomeUnknown as error:
                raise error.renamed(name) from error.__cause__

        connection, own = await self._lists.tool(name)
        return await self._within("call_tool", options, name, partial(connection.ask, call))

    @unawaited("group.get_prompt")
    @works_on_asyncio
    async def get_prompt(
        self, name: str, arguments: Mapping[str, str] | None = None, **options: Unpack[CallKeywords]
    ) -> GetPromptResult:
        """Return a prompt by its name in the group. Raises as `call_tool` does."""
        connection, own = self._lists.by_name(name, "prompt")
        ask = partial(connection.ask, lambda client: client.get_prompt(own, arguments, **options))
        return await self._within("get_prompt", options, name, ask)

    @unawaited("group.read_resource")
    @works_on_asyncio
    async def read_resource(self, uri: str, **options: Unpack[CallKeywords]) -> ReadResourceResult:
        """Return the contents of a resource by its URI in the group. Raises as `call_tool` does."""
        connection, own = self._lists.by_uri(uri)
        ask = partial(connection.ask, lambda client: client.read_resource(own, **options))
        return await self._within("read_resource", options, uri, ask)

    @unawaited("group.complete")
    @works_on_asyncio
    async def complete(
        self,
        ref: Reference,
        argument: str,
        value: str,
        *,
        context: Mapping[str, str] | None = None,
        timeout: float = math.inf,
    ) -> Completion:
        """Return suggestions for an argument of a prompt or template of the group, as `Client.complete` does."""
        if isinstance(ref, PromptReference):
            connection, own = self._lists.by_name(ref.name, "prompt")
            known: Reference = ref.model_copy(update={"name": own})
        else:
            connection, own = self._lists.by_uri(ref.uri)
            known = ref.model_copy(update={"uri": own})
        return await self._within(
            "complete",
            {"timeout": timeout},
            argument,
            partial(
                connection.ask,
                lambda client: client.complete(known, argument, value, context=context, timeout=timeout),
            ),
        )

    # changes

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Sequence[str] = (),
    ) -> Changes:
        """Subscribe to changes of the lists of the group, and of the content of the resources at `uris` (those of the group).

            async with group.listen(tools=True) as changes:
                async for change in changes:
                    ...

        The lists change when a server reports it, and when a server is lost for long or is back. Subscriptions outlive the
        connections.
        """
        return Changes(lambda: self._listeners, subscription_filter(tools, prompts, resources, uris))

    def __repr__(self) -> str:
        states = ", ".join(f"{name} {connection.state.status}" for name, connection in self._connections.items())
        return f"<ClientGroup {self._tasks!r}: {states}>"

    # one step each

    def _connection(self, server: str) -> Member:
        connection = self._connections.get(server)
        if connection is None:
            advice = nearest(server, self._connections) or f"there are {shown(self._connections)}"
            raise KeyError(f"the group has no server {server!r:.80}: {advice}")
        return connection

    async def _until_connected(self, connection: Member) -> Client:
        while True:
            _ = self._tasks.nursery
            if (client := connection.connected) is not None:
                return client
            await connection.moved()

    async def _within(self, method: str, options: CallKeywords, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Return what a call returns, within its timeout: the client's own does not count the wait for a server."""
        # The client would check them too, once there is one, and knows the tool by another name.
        call_options(method, what, options)
        _ = self._tasks.nursery
        timeout = options.get("timeout", math.inf)
        return await (call() if timeout == math.inf else run_with_timeout(timeout, what, call))

    def _on_state(self, state: ServerState) -> None:
        self._call_back("on_state", self._on_state_given, state)

    def _on_change(self, change: Change) -> None:
        self._call_back("on_change", self._on_change_given, change)
        self._listeners.dispatch_change(change)

    def _call_back(self, name: str, callback: Callable[[T], None] | None, value: T) -> None:
        try:
            if callback is not None:
                callback(value)
        # It is called by the tasks that keep the connections, which must go on.
        except Exception as error:  # noqa: BLE001  whatever an author's function raises
            self._records.log(f"{name} of a group failed", level=logging.ERROR, exc_info=error)
