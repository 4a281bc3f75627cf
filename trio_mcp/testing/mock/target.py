"""What a mock client may be asked to call, and the server and the name that it calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ...server import Server, Tool
from ...server.registration import home_of

Target: TypeAlias = Callable[..., object] | Tool | tuple[Server, str]
"""A function, a tool, or a server and the name of its tool."""


def find_tool(target: Target) -> tuple[Server, str]:
    """Return the server to call, and the name of its tool.

    Raises:
        TypeError: it is none of the three, or a function that cannot be a tool.
        LookupError: the server has no tool of that name.
    """
    given: object = target  # a test may not be type-checked
    match given:
        case (Server() as server, str() as name):
            names = [tool.name for tool in server.tools]
            if name not in names:
                raise LookupError(f"the server has no tool {name!r}; it has {', '.join(names) or 'none'}")
            return server, name
        case Tool():
            return tool_of(given.function, given) or alone(given)
        case _ if callable(given) and not isinstance(given, type):
            return tool_of(given, None) or alone(given)
        case _:
            raise TypeError(
                f"call a function, a Tool, or a server and a name: call((server, 'add')), not {target!r:.80}"
            )


def tool_of(function: Callable[..., object], tool: Tool | None) -> tuple[Server, str] | None:
    """Return where a function is a tool, or where this tool of it is; None if no server has it."""
    server = home_of(function)
    if isinstance(server, Server):
        for each in server.tools:
            if each.function == function and (tool is None or each.name == tool.name):
                return server, each.name
    return None


def alone(target: Callable[..., object] | Tool) -> tuple[Server, str]:
    """Return a server that has only this tool."""
    server = Server("mock")
    return server, server.add_tool(target).name
