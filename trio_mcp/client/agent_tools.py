"""The tools of several servers as a model gets them: in one list, under names that the APIs of models accept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

import trio

from ..errors import ConfigurationError, LimitExceeded
from ..groups import unwrap
from ..types import Tool
from .client import Client
from .lists import TOOLS, RejectedCursor
from .timeouts import run_with_timeout

MAX_TOOLS: Final = 1000
"""Tools that a model is offered, of all servers together."""

MAX_DEFINITIONS: Final = 4 * 1024 * 1024
"""Bytes of JSON in the definitions of one server's tools. The model gets them with each request."""

MAX_NAME: Final = 64
ACCEPTED: Final = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME}}}")
"""The names of tools that the APIs of the large providers accept. MCP also allows dots and slashes, and 128 characters."""

DIGEST: Final = 8
"""Characters of the digest in a name that was changed."""


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool of one of the servers, as it was listed."""

    client: Client
    tool: Tool


def model_name(name: str) -> str:
    """Return the name of a tool for a model: the same, if the model's API accepts it.

    Another name depends on the tool's name alone, so that a conversation that is continued later has the same names.
    """
    if ACCEPTED.fullmatch(name):
        return name
    # Without the digest, `files.read` and `files/read` would be one tool.
    digest = sha256(name.encode(errors="replace")).hexdigest()[:DIGEST]
    return f"{re.sub('[^A-Za-z0-9_-]', '_', name)[: MAX_NAME - DIGEST - 1]}_{digest}"


async def list_agent_tools(clients: Iterable[Client], timeout: float) -> dict[str, AgentTool]:
    """Return the tools of all servers by the names that the model gets; servers without tools are left out.

    Args:
        timeout: seconds that each server may take to list its tools.

    Raises:
        ConfigurationError: two tools would have the same name.
        RequestTimeout: a server took longer.
        LimitExceeded: there are more than `MAX_TOOLS`, or the definitions of one server have more than `MAX_DEFINITIONS` bytes.

    What a list raises has a note that names the server.
    """
    listed = await list_all([client for client in clients if client.server_capabilities.tools is not None], timeout)
    tools: dict[str, AgentTool] = {}
    for client, offered in listed.items():
        for tool in offered:
            name = model_name(tool.name)
            other = tools.setdefault(name, AgentTool(client, tool))
            # A server whose list changes while its pages are read may list a tool twice.
            if other.client is not client or other.tool.name != tool.name:
                raise ConfigurationError(
                    f"two tools have the same name for the model, {name!r}: {tool.name[:128]!r} of {server_of(client)} and "
                    f"{other.tool.name[:128]!r} of {server_of(other.client)}; run the agent without one of the clients"
                )
    if len(tools) > MAX_TOOLS:
        raise LimitExceeded(f"the servers have {len(tools)} tools; the limit for one model is {MAX_TOOLS}")
    return tools


async def list_all(clients: Iterable[Client], timeout: float) -> Mapping[Client, list[Tool]]:
    """Return the tools of each server, in the order of the clients. The first failure cancels the others."""
    listed: dict[Client, list[Tool]] = {client: [] for client in clients}

    async def list_one(client: Client) -> None:
        try:
            listed[client] = await run_with_timeout(timeout, TOOLS.method, partial(read_tools, client))
        except Exception as error:
            error.add_note(f"while the tools of {server_of(client)} were listed")
            raise

    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            for client in listed:
                nursery.start_soon(list_one, client)
    except BaseExceptionGroup as group:
        failure = unwrap(group)
    # Raised outside of the `except`, so that it does not show the nursery's group.
    if failure is not None:
        try:
            raise failure
        finally:
            # Its traceback refers to this frame: a cycle, which would keep the error's frames alive.
            del failure
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
    """Return the name of a client's server for an error."""
    info = client.server_info
    return "a server without a name" if info is None else f"the server {info.name[:128]!r}"
