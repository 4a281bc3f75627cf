"""The tools of a server, as its own calls see them: a tool loop runs them by name, by value, or makes them of functions."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from typing import cast

from ...runtime import ThreadLimiter
from ...session import RequestFacts
from ..catalog import Catalog
from ..options import check_function, check_named
from .tool import Tool, make_tool


class ServerTools:
    """Finds and makes tools for the calls of one server; see `trio_mcp.session.calls.services.OwnTools`.

    Args:
        tools: those that are registered.
        threads: where functions that are not async run.
    """

    def __init__(self, tools: Catalog[Tool], threads: ThreadLimiter) -> None:
        self._tools = tools
        self._threads = threads
        self._made: dict[Callable[..., object], Tool] = {}

    def named(self, name: str, facts: RequestFacts) -> Tool | None:
        """Return the registered tool of this name; None if there is none, or it is hidden from the caller of the request."""
        tool = self._tools.by_key.get(name)
        if tool is None or (tool.access is not None and tool.access.hides_from(facts.caller)):
            return None
        return tool

    def registered(self, tool: object) -> str | None:
        """Return the name under which a tool, the function of one, or a name is registered; None if it is not."""
        if isinstance(tool, str):
            return tool if tool in self._tools.by_key else None
        for each in self._tools:
            # Not the value itself: a server adds a copy, with its own threads.
            function = tool.function if isinstance(tool, Tool) else tool
            if each.function == function and (function is tool or each.name == cast("Tool", tool).name):
                return each.name
        return None

    def made_of(self, tool: object) -> Tool | None:
        """Return a function, or a tool that is not registered here, as a tool; None if it is neither.

        Raises:
            TypeError, ValueError: a function cannot be a tool.
        """
        if isinstance(tool, Tool):
            return tool.with_threads(self._threads)
        if not callable(tool):
            return None
        check_function(tool, "tools")
        check_named(tool)
        # Only a function of a module lives as long as the server may. Any other would be kept, with all that it holds.
        if not isfunction(tool) or "<locals>" in tool.__qualname__:
            return make_tool(tool, {}, self._threads)
        known = self._made.get(tool)
        if known is None:
            known = self._made[tool] = make_tool(tool, {}, self._threads)
        return known
