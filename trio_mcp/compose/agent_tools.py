"""The tools of several servers as a model gets them: in one list, under names that the APIs of models accept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final, Protocol

import trio

from ..base.groups import UnwrappedErrors
from ..base.logs import peer_logger
from ..client.client import Client
from ..client.lists import TOOLS, RejectedCursor
from ..client.requester import run_with_timeout
from ..errors import ConfigurationError, LimitExceeded
from ..session.notification_dispatch import OnProgress
from ..types import CallToolResult, JsonObject, Tool

logger = peer_logger("trio_mcp.client")

MAX_TOOLS: Final = 1000
"""Tools that a model is offered, of all servers together."""

MAX_DEFINITIONS: Final = 4 * 1024 * 1024
"""Bytes of JSON in the definitions of one server's tools. The model gets them with each request."""

MAX_NAME: Final = 64
ACCEPTED: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME}}}")
"""The names of tools that the APIs of the large providers accept. MCP also allows dots and slashes, and 128 characters."""

DIGEST: Final = 8
"""Characters of the digest in a name that was changed."""


class CallTool(Protocol):
    """Calls one tool."""

    async def __call__(
        self, arguments: JsonObject, /, *, timeout: float, on_progress: OnProgress | None
    ) -> CallToolResult: ...


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool of one of the servers, as it was listed.

    Attributes:
        owner: what has it: a client, or a group of clients.
        server: names its server: as the group does, or as the server itself does.
        tool: as its server lists it.
        name: as the owner lists it.
        call: calls it.
        find_client: returns the client of its server.
    """

    owner: object
    server: str
    tool: Tool
    name: str
    call: CallTool
    find_client: Callable[[], Client]


def model_name(name: str) -> str:
    """Return the name of a tool for a model: the same, if the model's API accepts it.

    Another name depends on the tool's name alone, so that a conversation that is continued later has the same names.
    """
    if ACCEPTED.fullmatch(name):
        return name
    # Without the digest, `files.read` and `files/read` would be one tool.
    digest = sha256(name.encode(errors="replace")).hexdigest()[:DIGEST]
    return f"{re.sub('[^A-Za-z0-9_-]', '_', name)[: MAX_NAME - DIGEST - 1]}_{digest}"


async def list_client_tools(clients: Iterable[Client], timeout: float) -> list[AgentTool]:
    """Return the tools of the servers of these clients; servers without tools are left out.

    Args:
        timeout: seconds that each server may take to list its tools.

    Raises:
        RequestTimeout: a server took longer.
        LimitExceeded: a server has more than `MAX_TOOLS`, or their definitions have more than `MAX_DEFINITIONS` bytes.

    What a list raises has a note that names the server.
    """
    listed = await list_all([client for client in clients if client.server_capabilities.tools is not None], timeout)
    return [
        AgentTool(
            client, server_name(client), tool, tool.name, partial(client.call_tool, tool.name), partial(_same, client)
        )
        for client, tools in listed.items()
        for tool in tools
    ]


def by_model_name(tools: Iterable[AgentTool]) -> dict[str, AgentTool]:
    """Return the tools by the names that the model gets. Of two tools of one owner that would have the same the first is one.

    Raises:
        ConfigurationError: two tools of different owners would have the same name.
        LimitExceeded: there are more than `MAX_TOOLS`.
    """
    named: dict[str, AgentTool] = {}
    for tool in tools:
        name = model_name(tool.name)
        other = named.setdefault(name, tool)
        if other.owner is not tool.owner:
            raise ConfigurationError(
                f"two tools have the same name for the model, {name!r}: {tool.name[:128]!r} of the server {tool.server!r} and "
                f"{other.name[:128]!r} of the server {other.server!r}; leave one of them out, or use a ClientGroup, which has a "
                "prefix for each server"
            )
        # A server whose list changes while its pages are read may list a tool twice.
        if other.tool != tool.tool or other.name != tool.name:
            text = "the tool %r of the server %r is left out: for the model its name is %r, as that of %r before it"
            logger.warning(text, tool.name[:128], tool.server, name, other.name[:128])
    if len(named) > MAX_TOOLS:
        raise LimitExceeded(f"the servers have {len(named)} tools; the limit for one model is {MAX_TOOLS}")
    return named


def offered(tools: Mapping[str, AgentTool]) -> list[Tool]:
    """Return the tools as a model gets them, with names that its API accepts."""
    return [
        listed.tool if listed.tool.name == name else listed.tool.model_copy(update={"name": name})
        for name, listed in tools.items()
    ]


def _same(client: Client) -> Client:
    return client


async def list_all(clients: Iterable[Client], timeout: float) -> Mapping[Client, list[Tool]]:
    """Return the tools of each server, in the order of the clients. The first failure cancels the others."""
    listed: dict[Client, list[Tool]] = {client: [] for client in clients}

    async def list_one(client: Client) -> None:
        try:
            listed[client] = await run_with_timeout(timeout, TOOLS.method, partial(read_tools, client))
        except Exception as error:
            error.add_note(f"while the tools of {server_of(client)} were listed")
            raise

    with UnwrappedErrors():
        async with trio.open_nursery() as nursery:
            for client in listed:
                nursery.start_soon(list_one, client)
    return listed


async def read_tools(client: Client) -> list[Tool]:
    """Return the tools of one server.

    Raises:
        LimitExceeded: there are more than `MAX_TOOLS`, or they have more than `MAX_DEFINITIONS` bytes; no further page is read.
    """
    try:
        return await collect(client)
    except RejectedCursor:
        pass
    # The cached pages were stale, and are invalidated now.
    return await collect(client)


async def collect(client: Client) -> list[Tool]:
    tools: list[Tool] = []
    size = 0
    # Not `list_tools`, which reads far more than any model takes before it raises.
    async with aclosing(client.iter_tools()) as each:
        async for tool in each:
            tools.append(tool)
            size += len(tool.encode())
            if len(tools) > MAX_TOOLS:
                raise LimitExceeded(
                    f"{server_of(client)} has more than {MAX_TOOLS} tools, which is the limit for a model"
                )
            if size > MAX_DEFINITIONS:
                raise LimitExceeded(
                    f"the tools of {server_of(client)} have more than {MAX_DEFINITIONS} bytes of definitions, which is the limit"
                )
    return tools


def server_of(client: Client) -> str:
    """Return the server of a client for an error."""
    name = server_name(client)
    return f"the server {name!r}" if name else "a server without a name"


def server_name(client: Client) -> str:
    """Return the name that a server gave itself; empty if it gave none."""
    info = client.server_info
    return "" if info is None else info.name[:128]
