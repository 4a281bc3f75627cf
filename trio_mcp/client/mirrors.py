"""Which arguments of which tools are repeated in headers (2026-07-28, `x-mcp-header`: M-HTTP-6, M-HTTP-7c)."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from ..errors import LocalProtocolError
from ..protocol.http.parameter_headers import ParameterHeaders
from ..session.client import NO_HEADERS
from ..types import JsonObject, Tool

logger = logging.getLogger("trio_mcp.client")

MAX_TOOLS = 10_000
"""Tools whose headers are remembered; the server says what is wrong when one is forgotten."""


class Mirrors:
    """What the tools that were listed say of headers."""

    def __init__(self) -> None:
        self._by_tool: OrderedDict[str, ParameterHeaders] = OrderedDict()

    def learn(self, tools: Sequence[Tool]) -> list[Tool]:
        """Remember what these tools want, and return those whose annotations are legal; the others are logged (S-57)."""
        return [tool for tool in tools if self._is_legal(tool)]

    def headers(self, tool: str, arguments: JsonObject) -> Mapping[str, str]:
        """The headers of a call.

        Raises:
            LocalProtocolError: an argument that is to be repeated cannot be.
        """
        wanted = self._by_tool.get(tool)
        if wanted is None:
            return NO_HEADERS
        try:
            return wanted.headers(arguments)
        except ValueError as error:
            raise LocalProtocolError(str(error)) from None

    def _is_legal(self, tool: Tool) -> bool:
        self._by_tool.pop(tool.name, None)
        try:
            wanted = ParameterHeaders.of(tool.input_schema)
        except ValueError as error:
            logger.warning("the tool %s is left out: %s", tool.name, error)
            return False
        if wanted:
            self._by_tool[tool.name] = wanted
            if len(self._by_tool) > MAX_TOOLS:
                self._by_tool.popitem(last=False)
        return True
