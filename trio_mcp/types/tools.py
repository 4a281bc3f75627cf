"""Tools, and calling them."""

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Never, Self

from pydantic import BeforeValidator
from pydantic_core import from_json

from .. import types
from ..errors import ToolFailed
from .base import JsonObject, JsonValue, LateType, Model
from .messages import InputResponseRequestParams, Result, TaskMetadata
from .offered import Offered

if TYPE_CHECKING:
    from .content import ContentBlock
else:
    # Most calls return a text, which is sent without a model: their server needs no models of blocks.
    ContentBlock = Annotated[object, LateType("ContentBlock")]


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


class CallToolRequestParams(InputResponseRequestParams):
    """The params of `tools/call`. `task` exists in 2025-11-25 only."""

    name: str
    arguments: JsonObject | None = None
    task: TaskMetadata | None = None


def _false_for_null(value: object) -> object:
    return False if value is None else value


class CallToolResult(Result):
    """The result of a tool. `structured_content=None` is sent as null; if it is not set, the member is left out."""

    sent_if_set: ClassVar[set[str] | None] = {"is_error"}
    content: list[ContentBlock]
    structured_content: JsonValue = None
    # Some servers send null.
    is_error: Annotated[bool, BeforeValidator(_false_for_null)] = False

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join(block.text for block in self.content if isinstance(block, types.TextContent))

    @property
    def data(self) -> JsonValue:
        """The value that the tool returned: the structured content, or without it the text; None if there is neither.

        Structured content has to be an object in the legacy era, so that a tool that returns 5 sends `{"result": 5}`; its `data`
        is 5. An object with the one member `result` that the tool returned itself stays as it is: its text is this whole object.

        Raises:
            ToolFailed: the result is an error; see `check`.
        """
        content = self.check().structured_content
        if "structured_content" not in self.model_fields_set:
            return self.text if any(isinstance(block, types.TextContent) for block in self.content) else None
        if isinstance(content, dict) and len(content) == 1 and "result" in content and not self._shows(content):
            return content["result"]
        return content

    if not TYPE_CHECKING:

        def __getitem__(self, _key: object) -> Never:
            # Old versions of FastMCP return a list.
            raise TypeError("'CallToolResult' object is not subscriptable: write .content[0], or .text or .data")

    def _shows(self, content: JsonObject) -> bool:
        """Return whether the text is this object, and not what is in it."""
        try:
            return bool(from_json(self.text) == content)
        except ValueError:
            return False

    def check(self) -> Self:
        """Return this result if it is not an error.

        Raises:
            ToolFailed: it is one; the message is its text.
        """
        if self.is_error:
            raise ToolFailed(self.text or "the tool failed, and its result has no text", self.structured_content)
        return self

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
