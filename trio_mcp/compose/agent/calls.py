"""The calls that a model makes: which tools it has, and running them on the servers that have them."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Final, TypeAlias, TypedDict

import trio

from ...base.checks import check_callable, check_int, check_seconds, check_sync_callback, mistake
from ...base.groups import UnwrappedErrors
from ...client.client import Client
from ...client.sampling import maybe_await
from ...errors import McpError, ProviderError
from ...session.token_usage import call_result, error_result
from ...types import JsonObject, ProgressNotificationParams, Tool, ToolResultContent, ToolUseContent
from ..agent_tools import AgentTool, by_model_name, list_client_tools
from ..group import ClientGroup
from ..names import ToolFilter, ToolSelection

logger = logging.getLogger("trio_mcp.client")

MAX_PARALLEL: Final = 16
"""Calls of one answer that run at once."""
MAX_RESULT: Final = 4 * 1024 * 1024
"""Bytes of a tool's result that the model gets."""
LIST_TIMEOUT: Final = 60.0
"""Seconds that a server may take to list its tools."""

NOT_ALLOWED: Final = "The user did not allow this call."

AgentClients: TypeAlias = Client | ClientGroup | Iterable[Client | ClientGroup]
"""What has the tools for a model: an open client, a group of clients, or several of them."""


@dataclass(frozen=True, slots=True)
class AgentCall:
    """A call that a model wants to make.

    Attributes:
        client: the client of the server that has the tool.
        tool: the tool as its server lists it. Its annotations are hints of the server, which may be wrong.
        arguments: what the model passes; the server validates it.
        id: the model's id of the call.
        server: the server: its name in the group, or without a group the name that it gave itself, which may be empty.
        name: the tool's name in the group, or without a group that of `tool`.
    """

    client: Client
    tool: Tool
    arguments: JsonObject
    id: str
    server: str = ""
    name: str = ""


ApproveCall: TypeAlias = Callable[[AgentCall], bool | Awaitable[bool]]
"""A function, plain or async, that returns whether a call may be made."""

OnAgentProgress: TypeAlias = Callable[[AgentCall, ProgressNotificationParams], None]
"""A plain function, called with a call and each report of its progress."""


class ModelToolsKeywords(TypedDict, total=False):
    """The keyword arguments of `list_model_tools`; `run_agent` describes each."""

    only: ToolSelection | None
    without: ToolSelection | None
    approve: ApproveCall | None
    on_progress: OnAgentProgress | None
    tool_timeout: float
    list_timeout: float
    max_parallel: int
    max_result: int


@dataclass(slots=True, eq=False, kw_only=True)
class AgentCalls:
    """Lists the tools for a model, and runs its calls. The arguments are `ModelToolsKeywords`.

    Attributes:
        tools: by the names that the model gets; empty before they are listed.
    """

    only: InitVar[ToolSelection | None] = None
    without: InitVar[ToolSelection | None] = None
    approve: ApproveCall | None = None
    on_progress: OnAgentProgress | None = None
    tool_timeout: float = math.inf
    list_timeout: float = LIST_TIMEOUT
    max_parallel: int = MAX_PARALLEL
    max_result: int = MAX_RESULT
    tools: Mapping[str, AgentTool] = field(default_factory=dict[str, AgentTool], init=False)
    _filter: ToolFilter = field(init=False)

    def __post_init__(self, only: ToolSelection | None, without: ToolSelection | None) -> None:
        self._filter = ToolFilter(only, without)
        if self.approve is not None:
            check_callable("approve", self.approve)
        if self.on_progress is not None:
            check_sync_callback("on_progress", self.on_progress)
        for name in ("tool_timeout", "list_timeout"):
            check_seconds(name, getattr(self, name), positive=True, hint="math.inf for no limit")
        check_int("max_parallel", self.max_parallel, least=1)
        check_int("max_result", self.max_result, least=1)

    async def list_tools(self, clients: AgentClients) -> None:
        """List the tools that the model gets.

        Raises:
            TypeError: these are not clients.
            ConfigurationError: two tools would have the same name.
            LimitExceeded: there are too many tools.

        Raises what a list of a client raises; a server of a group whose list fails is left out.
        """
        each = unique(clients)
        listed = await list_client_tools([client for client in each if isinstance(client, Client)], self.list_timeout)
        for group in each:
            if isinstance(group, ClientGroup):
                listed += await _list_group(group, self.list_timeout)
        for name in self._filter.unmatched(tool.name for tool in listed):
            logger.warning("a filter of an agent names the tool %r, which is not listed", name)
        self.tools = by_model_name(tool for tool in listed if self._filter.allows(_named(tool)))

    async def run(self, calls: Sequence[ToolUseContent]) -> list[ToolResultContent]:
        """Run the calls of one answer, and return their results in its order.

        What a function of the program raises ends all of them, and is raised; several exceptions are raised as a group.
        """
        results: dict[int, ToolResultContent] = {}
        places = trio.Semaphore(self.max_parallel)

        async def run(index: int, tool: AgentTool, call: ToolUseContent) -> None:
            results[index] = await self._result(tool, call)
            places.release()

        with UnwrappedErrors():
            async with trio.open_nursery() as nursery:
                for index, call in enumerate(calls):
                    tool = self.tools.get(call.name)
                    if tool is None:
                        results[index] = error_result(call, f"There is no tool named {call.name[:128]!r}.")
                        continue
                    await places.acquire()
                    # One after the other, in the order of the answer: a user reads one question at a time.
                    if await self._is_allowed(tool, call):
                        nursery.start_soon(run, index, tool, call)
                    else:
                        results[index] = error_result(call, NOT_ALLOWED)
                        places.release()
        return [results[index] for index in range(len(calls))]

    async def _is_allowed(self, tool: AgentTool, call: ToolUseContent) -> bool:
        if self.approve is None:
            return True
        allowed: object = await maybe_await(self.approve(agent_call(tool, call)))
        if not isinstance(allowed, bool):
            raise TypeError(mistake("approve", "a function that returns True or False", allowed))
        return allowed

    async def _result(self, tool: AgentTool, call: ToolUseContent) -> ToolResultContent:
        result = await self._called(tool, call)
        size = len(result.encode())
        if size > self.max_result:
            return error_result(call, f"The result has {size} bytes; the limit is max_result, {self.max_result}.")
        return result

    async def _called(self, tool: AgentTool, call: ToolUseContent) -> ToolResultContent:
        report = None if self.on_progress is None else partial(self.on_progress, agent_call(tool, call))
        try:
            return call_result(call, await tool.call(call.input, timeout=self.tool_timeout, on_progress=report))
        except ProviderError as error:
            return error_result(call, f"The call failed: {error.public_text}")
        except McpError as error:
            return error_result(call, f"The call failed: {error}")


def agent_call(tool: AgentTool, call: ToolUseContent) -> AgentCall:
    """Return a call as the functions of a program see it."""
    return AgentCall(tool.find_client(), tool.tool, call.input, call.id, tool.server, tool.name)


async def _list_group(group: ClientGroup, timeout: float) -> list[AgentTool]:
    return [
        AgentTool(group, server, tool, name, partial(group.call_tool, name), partial(group.__getitem__, server))
        for server, tool, name in await group.list_tools_by_server(timeout=timeout)
    ]


def _named(tool: AgentTool) -> Tool:
    return tool.tool if tool.tool.name == tool.name else tool.tool.model_copy(update={"name": tool.name})


def unique(clients: AgentClients) -> list[Client | ClientGroup]:
    """Return the clients and groups, each once.

    Raises:
        TypeError: they are none.
    """
    if isinstance(clients, Client | ClientGroup):
        return [clients]
    if not isinstance(clients, Iterable):
        raise TypeError(mistake("clients", "open clients, such as [client], or a ClientGroup", clients))
    found = list(dict.fromkeys(clients))
    for client in found:
        if not isinstance(client, Client | ClientGroup):
            raise TypeError(mistake("each of the clients", "an open Client or ClientGroup", client))
    return found
