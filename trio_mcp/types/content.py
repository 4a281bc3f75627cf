"""Content blocks: the parts of tool results, prompts and messages of a model; and resources."""

from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from .base import Fraction, Integer, JsonObject, JsonValue, MetaModel, Model, NullableModel
from .offered import Offered

Role: TypeAlias = Literal["user", "assistant"]


class Annotations(Model):
    """Hints about a block or a resource: its audience, its importance (0 to 1), and when it last changed (ISO 8601)."""

    audience: list[Role] | None = None
    priority: Fraction | None = None
    last_modified: str | None = None


class _Block(MetaModel):
    annotations: Annotations | None = None


class _Media(_Block):
    data: str
    mime_type: str


class TextContent(_Block):
    """Text."""

    type: Literal["text"] = "text"
    text: str


class ImageContent(_Media):
    """An image; `data` is base64."""

    type: Literal["image"] = "image"


class AudioContent(_Media):
    """Audio; `data` is base64."""

    type: Literal["audio"] = "audio"


class ResourceContents(MetaModel):
    """The members that the contents of text and binary resources share."""

    uri: str
    mime_type: str | None = None


class TextResourceContents(ResourceContents):
    """The contents of a resource that is text."""

    text: str


class BlobResourceContents(ResourceContents):
    """The contents of a binary resource; `blob` is base64."""

    blob: str


class Resource(Offered):
    """A resource that a client can read; `size` is in bytes, before any encoding."""

    uri: str
    mime_type: str | None = None
    size: Integer | None = None
    annotations: Annotations | None = None


class ResourceLink(Resource):
    """A content block that refers to a resource."""

    type: Literal["resource_link"] = "resource_link"


class EmbeddedResource(_Block):
    """A content block with the contents of a resource."""

    type: Literal["resource"] = "resource"
    resource: TextResourceContents | BlobResourceContents


KNOWN_BLOCKS: Final = frozenset(("audio", "image", "resource", "resource_link", "text", "tool_result", "tool_use"))


def _unknown(kind: str) -> str:
    # A block of a known kind with something wrong in it is a mistake, and not a kind of a later revision.
    if kind in KNOWN_BLOCKS:
        raise PydanticCustomError("known_block", "is a known kind of block")
    return kind


class UnknownContent(MetaModel):
    """A content block of a kind that this package does not know, with its members as they came; `wire()` has all of them."""

    type: Annotated[str, AfterValidator(_unknown)]


_Known: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource,
    Field(discriminator="type"),
]
# From left to right, so that a block of a known kind costs nothing more.
ContentBlock: TypeAlias = Annotated[_Known | UnknownContent, Field(union_mode="left_to_right")]


def no_text(content: object) -> object:
    """Return content of a message. Raises an error that says what to write for a text, which other libraries take there."""
    if isinstance(content, str):
        raise PydanticCustomError("text_block", "it is a content block: write TextContent(text=...)")
    return content


class ToolUseContent(MetaModel):
    """A tool call that a model requests (sampling)."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: JsonObject


class ToolResultContent(NullableModel):
    """The result of a tool call, for the model that requested it (sampling)."""

    nullable: ClassVar[tuple[tuple[str, str], ...]] = (("structured_content", "structuredContent"),)

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: list[ContentBlock]
    structured_content: JsonValue = None
    is_error: bool | None = None


SamplingContentBlock: TypeAlias = Annotated[
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent,
    Field(discriminator="type"),
]
