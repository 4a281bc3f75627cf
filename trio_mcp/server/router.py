"""The table from request methods to what serves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import RemoteProtocolError
from ..protocol.jsonrpc import INVALID_PARAMS, Encoded
from ..session import Plan, RequestFacts, Route
from ..types import CallToolRequestParams, ListToolsResult, Model, PaginatedRequestParams
from .tool import Tool

__all__ = ["Router"]


class Router:
    """What a server offers, by name, and the routes that offer it. Lists are encoded once for each revision."""

    def __init__(self, signature: Encoded) -> None:
        self._signature = signature
        self._tools: dict[str, Tool] = {}
        self._lists: dict[str, Encoded] = {}

    def add_tool(self, tool: Tool) -> None:
        """Offer a tool.

        Raises:
            ValueError: another tool has its name.
        """
        if tool.name in self._tools:
            raise ValueError(f"there is a tool named {tool.name!r} already")
        self._tools[tool.name] = tool
        self._lists.clear()

    @property
    def tools(self) -> Iterable[Tool]:
        """In the order in which they were added, which is the order of `tools/list`."""
        return self._tools.values()

    @property
    def routes(self) -> Mapping[str, Route]:
        return {"tools/list": self._list_tools, "tools/call": self._call_tool}

    def _list_tools(self, facts: RequestFacts, params: Model) -> Encoded:
        assert isinstance(params, PaginatedRequestParams)
        if params.cursor is not None:
            raise RemoteProtocolError(f"the cursor {params.cursor[:64]!r} was not issued here", code=INVALID_PARAMS)
        encoded = self._lists.get(facts.protocol_version)
        if encoded is None:
            result = ListToolsResult(tools=[tool.model for tool in self._tools.values()])
            encoded = self._lists[facts.protocol_version] = facts.codec.encode_result(
                facts.method, result, self._signature
            )
        return encoded

    def _call_tool(self, facts: RequestFacts, params: Model) -> Model | Plan:
        assert isinstance(params, CallToolRequestParams)
        tool = self._tools.get(params.name)
        if tool is None:
            raise RemoteProtocolError(f"Unknown tool: {params.name[:128]}", code=INVALID_PARAMS)
        return tool.plan(facts, params.arguments or {})
