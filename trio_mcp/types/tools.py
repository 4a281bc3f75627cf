"""Tools: listing and calling them."""

from typing import Literal

from .base import JsonObject, JsonValue, Model
from .content import ContentBlock, Offered, TextContent
from .messages import CacheableResult, InputResponseRequestParams, PaginatedResult, Result


class ToolAnnotations(Model):
    """Hints about a tool, which a client must not trust (L-TOOL-10c).

    Without hints a tool counts as not read-only, destructive, not idempotent, and open to the world.
    """

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(Model):
    """How a tool may be run (2025-11-25 only)."""

    task_support: Literal["forbidden", "optional", "required"] | None = None


class Tool(Offered):
    """A tool that a model may call; both schemas are JSON Schema."""

    input_schema: JsonObject
    output_schema: JsonObject | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None


class ListToolsResult(PaginatedResult, CacheableResult):
    """A page of tools."""

    tools: list[Tool]


class CallToolRequestParams(InputResponseRequestParams):
    """The params of `tools/call`."""

    name: str
    arguments: JsonObject | None = None


class CallToolResult(Result):
    """The result of a tool. `structured_content=None` is sent as null; if it is not set, the member is left out."""

    content: list[ContentBlock]
    structured_content: JsonValue = None
    is_error: bool | None = None

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join(block.text for block in self.content if isinstance(block, TextContent))

    # Not a `NullableModel`: its serializer in Python would cost every result of every tool, for a null that few of them have.
    def wire(self) -> JsonObject:
        wire = super().wire()
        return {**wire, "structuredContent": None} if self._says_null else wire

    def encode(self) -> bytes:
        raw = super().encode()
        return raw[:-1] + b',"structuredContent":null}' if self._says_null else raw

    @property
    def _says_null(self) -> bool:
        return self.structured_content is None and "structured_content" in self.model_fields_set
