"""What tools promise of their results: structured content is held against the output schema that was listed (L-TOOL-6c)."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence

from ..errors import RemoteProtocolError
from ..protocol.schema.json_schema import Schema
from ..types import CallToolResult, JsonObject, Tool

logger = logging.getLogger("trio_mcp.client")

MAX_TOOLS = 10_000
"""Tools whose schemas are remembered; the results of one that is forgotten are not checked."""


class Promises:
    """The output schemas of the tools that were listed; each is compiled when a result is first held against it."""

    def __init__(self) -> None:
        self._schemas: OrderedDict[str, JsonObject | Schema] = OrderedDict()

    def learn(self, tools: Sequence[Tool]) -> None:
        """Remember what these tools promise."""
        for tool in tools:
            self._schemas.pop(tool.name, None)
            if tool.output_schema is not None:
                self._schemas[tool.name] = tool.output_schema
                if len(self._schemas) > MAX_TOOLS:
                    self._schemas.popitem(last=False)

    def check(self, tool: str, result: CallToolResult) -> None:
        """Hold a result against what its tool promised; an error result promises nothing.

        Raises:
            RemoteProtocolError: it breaks the promise; the message says where.
        """
        schema = None if result.is_error else self._schema(tool)
        if schema is None:
            return
        if "structured_content" not in result.model_fields_set:
            raise RemoteProtocolError(f"the tool {tool} promises structured content and sent none")
        problem = schema.check(result.structured_content, "structuredContent")
        if problem is not None:
            raise RemoteProtocolError(f"the tool {tool} sent something else than it promises: {problem}")

    def _schema(self, tool: str) -> Schema | None:
        """The schema of a tool; one that cannot be used is forgotten, so that it is logged once."""
        schema = self._schemas.get(tool)
        if isinstance(schema, dict):
            try:
                schema = self._schemas[tool] = Schema.compile(schema, "outputSchema")
            except ValueError as error:
                logger.warning("the results of the tool %s are not checked: %s", tool, error)
                del self._schemas[tool]
                return None
        return schema
