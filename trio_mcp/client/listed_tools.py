"""What the client remembers of the tools that it listed: which arguments go into headers, and the schemas of their results.

Arguments are repeated in headers since 2026-07-28 (`x-mcp-header`: M-HTTP-6, M-HTTP-7c). Structured content is validated
against the output schema in every revision (L-TOOL-6c).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from ..errors import LocalProtocolError, RemoteProtocolError
from ..protocol.http.parameter_headers import ParameterHeaders
from ..protocol.schema.json_schema import Schema
from ..session.client import NO_HEADERS
from ..types import CallToolResult, JsonObject, Tool
from .dialects import Dialect

logger = logging.getLogger("trio_mcp.client")

MAX_TOOLS = 10_000
"""Tools that are remembered. The server rejects a call of a forgotten one that needs headers; its results are not validated."""


class ListedTool:
    """What matters for the calls of one tool. Its schema is compiled when the first result is validated."""

    __slots__ = ("_headers", "_name", "_schema")

    def __init__(self, name: str, headers: ParameterHeaders | None, output_schema: JsonObject | None) -> None:
        self._name = name
        self._headers = headers
        self._schema: JsonObject | Schema | None = output_schema

    def headers(self, arguments: JsonObject) -> Mapping[str, str]:
        """Return the headers of a call with these arguments.

        Raises:
            LocalProtocolError: a header cannot carry one of the arguments.
        """
        if self._headers is None:
            return NO_HEADERS
        try:
            return self._headers.headers(arguments)
        except ValueError as error:
            raise LocalProtocolError(str(error)) from None

    def check_result(self, result: CallToolResult) -> None:
        """Validate the structured content of a result; an error result need not have any.

        Raises:
            RemoteProtocolError: it is missing or breaks the output schema; the message says where.
        """
        schema = None if result.is_error else self._compiled()
        if schema is None:
            return
        if "structured_content" not in result.model_fields_set:
            raise RemoteProtocolError(f"the tool {self._name} promises structured content and sent none")
        problem = schema.check(result.structured_content, "structuredContent")
        if problem is not None:
            raise RemoteProtocolError(f"the tool {self._name} sent something else than it promises: {problem}")

    def _compiled(self) -> Schema | None:
        if isinstance(self._schema, dict):
            try:
                self._schema = Schema.compile(self._schema, "outputSchema")
            except ValueError as error:
                logger.warning("the results of the tool %s are not checked: %s", self._name, error)
                self._schema = None  # so that it is logged once
        return self._schema


class ListedTools:
    """The tools of one server, as they were listed last.

    Attributes:
        by_name: those that have headers or an output schema; the one that was listed longest ago is first.
    """

    def __init__(self) -> None:
        self.by_name: OrderedDict[str, ListedTool] = OrderedDict()

    def add(self, tools: Sequence[Tool], dialect: Dialect) -> list[Tool]:
        """Remember these tools, and return those that a client may offer; the others are logged (S-57)."""
        return [tool for tool in tools if self._add(tool, dialect)]

    def _add(self, tool: Tool, dialect: Dialect) -> bool:
        self.by_name.pop(tool.name, None)
        headers, valid = None, True
        try:
            headers = dialect.parameter_headers(tool)
        except ValueError as error:
            logger.warning("the tool %s is left out: %s", tool.name, error)
            valid = False
        if headers or tool.output_schema is not None:
            self.by_name[tool.name] = ListedTool(tool.name, headers, tool.output_schema)
            if len(self.by_name) > MAX_TOOLS:
                self.by_name.popitem(last=False)
        return valid
