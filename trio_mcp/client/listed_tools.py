"""The listed tools as calls need them: which arguments are repeated in headers, and the schemas of their results.

Arguments are repeated in headers since 2026-07-28 (`x-mcp-header`: M-HTTP-6, M-HTTP-7c). Structured content is validated
against the output schema in every revision (L-TOOL-6c).
"""

# A client does not list the tools before a call, since a program may know the tool's name from elsewhere. So a tool that was not
# listed is called without headers and its result is not validated: the server rejects missing headers, and `Calls` then lists
# the tools and tries again.
#
# One mapping holds only the tools that need anything at all. Most have neither headers nor an output schema, and calling them
# costs one failed lookup.

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import LocalProtocolError, RemoteProtocolError
from ..logs import RepeatedRecords, peer_logger
from ..protocol.http.parameter_headers import ParameterHeaders
from ..protocol.schema.json_schema import Schema
from ..session.client import NO_HEADERS
from ..types import CallToolResult, JsonObject, Tool
from .dialects import Dialect

logger = peer_logger("trio_mcp.client")

MAX_TOOLS = 10_000
"""Tools that are stored. One above the limit counts as not listed."""


@dataclass(slots=True, eq=False)
class ListedTool:
    """The headers and the output schema of one tool."""

    _name: str
    _headers: ParameterHeaders | None
    # Compiled when the first result is validated: a list may have thousands of schemas, and a program calls few tools.
    _schema: JsonObject | Schema | None
    _records: RepeatedRecords

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
            raise RemoteProtocolError(f"the tool {self._name} must send structured content, and sent none")
        problem = schema.check(result.structured_content, "structuredContent")
        if problem is not None:
            raise RemoteProtocolError(f"the tool {self._name} sent content that breaks its output schema: {problem}")

    def _compiled(self) -> Schema | None:
        if isinstance(self._schema, dict):
            try:
                self._schema = Schema.compile(self._schema, "outputSchema")
            except ValueError as error:
                # The server's mistake. The content is usable all the same, so the call does not fail.
                self._records.log("the results of the tool %s are not validated: %s", self._name, error)
                # Removed, so that it is logged once.
                self._schema = None
        return self._schema


class ListedTools:
    """The tools of one server, as they were last listed.

    Attributes:
        by_name: the tools with headers or an output schema, the one that was listed longest ago first.
        task_support: which tools may, or must, run as tasks ("optional", "required"); those that may not are left out.
    """

    def __init__(self) -> None:
        self.by_name: OrderedDict[str, ListedTool] = OrderedDict()
        self.task_support: OrderedDict[str, str] = OrderedDict()
        self._without_headers: OrderedDict[str, None] = OrderedDict()
        self._harmless: OrderedDict[str, None] = OrderedDict()
        self._records = RepeatedRecords(logger)

    def add(self, tools: Sequence[Tool], dialect: Dialect) -> list[Tool]:
        """Store these tools, and return those that a client may offer; the others are logged."""
        return [tool for tool in tools if self._add(tool, dialect)]

    def is_harmless(self, name: str) -> bool:
        """Return whether a tool was listed as one that does no more when it runs twice."""
        return name in self._harmless

    def _add(self, tool: Tool, dialect: Dialect) -> bool:
        # Also if nothing is stored for it now: the tool may have had headers when it was listed before.
        self.by_name.pop(tool.name, None)
        self._without_headers.pop(tool.name, None)
        self._harmless.pop(tool.name, None)
        hints = tool.annotations
        if hints is not None and (hints.read_only_hint or hints.idempotent_hint):
            self._harmless[tool.name] = None
            if len(self._harmless) > MAX_TOOLS:
                self._harmless.popitem(last=False)
        self._note_task_support(tool)
        headers, valid = None, True
        try:
            headers = dialect.parameter_headers(tool)
        except ValueError as error:
            self._records.log("the tool %s is left out: %s", tool.name, error)
            valid = False
        if headers or tool.output_schema is not None:
            self.by_name[tool.name] = ListedTool(tool.name, headers, tool.output_schema, self._records)
            if not headers:
                self._without_headers[tool.name] = None
            if len(self.by_name) > MAX_TOOLS:
                self._evict()
        return valid

    def _note_task_support(self, tool: Tool) -> None:
        self.task_support.pop(tool.name, None)
        support = None if tool.execution is None else tool.execution.task_support
        if support is not None and support != "forbidden":
            self.task_support[tool.name] = support
            if len(self.task_support) > MAX_TOOLS:
                self.task_support.popitem(last=False)

    def _evict(self) -> None:
        # A tool without headers only loses its validation. One with headers could not be called: the server rejects the
        # call, and the list that is fetched then would evict it again.
        if self._without_headers:
            name, _ = self._without_headers.popitem(last=False)
            del self.by_name[name]
        else:
            self.by_name.popitem(last=False)
