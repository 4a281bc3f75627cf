"""Messages of Anthropic's messages API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, unquote

from ..types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    JsonObject,
    ResourceLink,
    Role,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
)
from .blocks import (
    ModelMessage,
    as_blocks,
    as_object,
    blocks_of,
    blocks_to_show,
    cannot,
    json_text,
    only,
    string,
    tool_use,
)

IMAGE_TYPES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
PDF: Final = "application/pdf"

TITLED: Final = "document:"
"""The scheme of the URI of a document whose title is not a URI; the rest of it is the title, quoted."""


def to_anthropic(messages: Sequence[SamplingMessage]) -> list[JsonObject]:
    """Return the messages as Anthropic's messages API takes them.

    Annotations and `_meta` are left out. In a tool result, structured content is JSON text unless a block already is; a text
    resource or a PDF is a document with the URI as its title, another image resource is an image; a link is a document if it
    refers to a PDF on the web, otherwise its JSON as text.

    Raises:
        ValueError: a block has no counterpart: audio, another binary resource, another type of image, a tool call of the user or
            a tool result of the assistant. The text begins with its place, as in `messages[2].content[0]`.
    """
    return [
        {
            "role": message.role,
            "content": [
                _write(block, message.role, f"messages[{index}].content[{position}]")
                for position, block in enumerate(blocks_of(message))
            ],
        }
        for index, message in enumerate(messages)
    ]


def _write(block: SamplingContentBlock, role: Role, place: str) -> JsonObject:
    if isinstance(block, ToolUseContent):
        if role != "assistant":
            raise cannot(place, "a message of the user has a tool call")
        return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
    if not isinstance(block, ToolResultContent):
        return _write_content(block, place)
    if role != "user":
        raise cannot(place, "a message of the assistant has a tool result")
    result: JsonObject = {
        "type": "tool_result",
        "tool_use_id": block.tool_use_id,
        "content": [
            _write_content(inner, f"{place}.content[{position}]")
            for position, inner in enumerate(blocks_to_show(block))
        ],
    }
    return result if block.is_error is None else {**result, "is_error": block.is_error}


def _write_content(block: ContentBlock, place: str) -> JsonObject:
    match block:
        case TextContent():
            return {"type": "text", "text": block.text}
        case ImageContent():
            return _write_image(block.data, block.mime_type, place)
        case AudioContent():
            raise cannot(place, "Anthropic's messages API has no audio")
        case EmbeddedResource():
            return _write_resource(block.resource, place)
        case ResourceLink():
            return _write_link(block)
        case UnknownContent():
            return {"type": "text", "text": json_text(block.wire())}


def _write_image(data: str, mime_type: str, place: str) -> JsonObject:
    mime_type = mime_type.lower()
    if mime_type not in IMAGE_TYPES:
        raise cannot(place, f"Anthropic's messages API has no images of the type {mime_type!r}")
    return {"type": "image", "source": {"type": "base64", "media_type": mime_type, "data": data}}


def _write_resource(resource: TextResourceContents | BlobResourceContents, place: str) -> JsonObject:
    if isinstance(resource, TextResourceContents):
        return _document({"type": "text", "media_type": "text/plain", "data": resource.text}, resource.uri)
    if (resource.mime_type or "").lower() == PDF:
        return _document({"type": "base64", "media_type": PDF, "data": resource.blob}, resource.uri)
    if resource.mime_type in IMAGE_TYPES:
        return _write_image(resource.blob, resource.mime_type, place)
    raise cannot(place, f"Anthropic's messages API has no resources of the type {resource.mime_type!r}")


def _document(source: JsonObject, uri: str) -> JsonObject:
    title = unquote(uri.removeprefix(TITLED)) if uri.startswith(TITLED) else uri
    return {"type": "document", "source": source, "title": title} if title else {"type": "document", "source": source}


def _write_link(link: ResourceLink) -> JsonObject:
    if (link.mime_type or "").lower() == PDF and link.uri.startswith(("https://", "http://")):
        return {"type": "document", "source": {"type": "url", "url": link.uri}, "title": link.name}
    return {"type": "text", "text": json_text(link.wire())}


def from_anthropic(messages: Sequence[ModelMessage]) -> list[SamplingMessage]:
    """Return messages of Anthropic's messages API as MCP has them; the values of the library `anthropic` may be among them.

    `cache_control` is left out: it is about costs, not content.

    Raises:
        ValueError: a message, block or member has no counterpart: system messages, thinking, citations, images by URL, documents
            outside of tool results. The text begins with its place, as in `messages[2].content[0]`.
    """
    return [_read_message(as_object(each, f"messages[{i}]"), f"messages[{i}]") for i, each in enumerate(messages)]


def _read_message(message: JsonObject, place: str) -> SamplingMessage:
    role = _read_role(message, place)
    blocks = [
        _read(block, role, f"{place}.content[{position}]")
        for position, block in enumerate(as_blocks(message.get("content"), f"{place}.content"))
    ]
    return SamplingMessage(role=role, content=blocks)


def _read_role(message: JsonObject, place: str) -> Role:
    _only(message, place, "role", "content")
    match message.get("role"):
        case "user":
            return "user"
        case "assistant":
            return "assistant"
        case "system":
            raise cannot(place, "MCP has no system messages; the text belongs in the system prompt of the request")
        case role:
            raise cannot(place, f"MCP has no role {role!r}")


def _read(block: JsonObject, role: Role, place: str) -> SamplingContentBlock:
    kind = block.get("type")
    if kind == "tool_use" and role == "assistant":
        _only(block, place, "type", "id", "name", "input", "caller")
        if block.get("caller") not in (None, {"type": "direct"}):
            raise cannot(place, "MCP has no counterpart of 'caller'")
        return read_tool_use(block, place)
    if kind == "tool_result" and role == "user":
        return _read_result(block, place)
    content = _read_content(block, place)
    if isinstance(content, TextContent | ImageContent):
        return content
    raise cannot(place, "MCP has documents only in tool results")


def read_tool_use(block: JsonObject, place: str) -> ToolUseContent:
    """Return a tool call of the assistant."""
    return tool_use(string(block, "id", place), string(block, "name", place), block.get("input"), place)


def _read_result(block: JsonObject, place: str) -> ToolResultContent:
    _only(block, place, "type", "tool_use_id", "content", "is_error")
    is_error = block.get("is_error")
    if is_error is not None and not isinstance(is_error, bool):
        raise cannot(place, "'is_error' is not a boolean")
    content = [
        _read_content(inner, f"{place}.content[{position}]")
        for position, inner in enumerate(as_blocks(block.get("content"), f"{place}.content"))
    ]
    return ToolResultContent(tool_use_id=string(block, "tool_use_id", place), content=content, is_error=is_error)


def _read_content(block: JsonObject, place: str) -> ContentBlock:
    kind = block.get("type")
    if kind == "text":
        _only(block, place, "type", "text")
        return TextContent(text=string(block, "text", place))
    if kind == "image":
        _only(block, place, "type", "source")
        source = as_object(block.get("source"), f"{place}.source")
        if source.get("type") != "base64":
            raise cannot(place, "MCP has no images by reference")
        return ImageContent(data=string(source, "data", place), mime_type=string(source, "media_type", place))
    if kind == "document":
        return _read_document(block, place)
    raise cannot(place, f"MCP has no {kind!r} block here")


def _read_document(block: JsonObject, place: str) -> ContentBlock:
    _only(block, place, "type", "source", "title")
    source = as_object(block.get("source"), f"{place}.source")
    title = block.get("title")
    title = title if isinstance(title, str) else ""
    match source.get("type"):
        case "text":
            text, mime_type = string(source, "data", place), string(source, "media_type", place)
            return EmbeddedResource(resource=TextResourceContents(uri=_uri(title), mime_type=mime_type, text=text))
        case "base64":
            blob, mime_type = string(source, "data", place), string(source, "media_type", place)
            return EmbeddedResource(resource=BlobResourceContents(uri=_uri(title), mime_type=mime_type, blob=blob))
        case "url":
            url = string(source, "url", place)
            return ResourceLink(uri=url, name=title or url, mime_type=PDF)
        case kind:
            raise cannot(place, f"MCP has no counterpart of a document with the source {kind!r}")


def _uri(title: str) -> str:
    """Return the URI for a document's title: the title if it is one, so that `to_anthropic` writes the title it read."""
    scheme, colon, _ = title.partition(":")
    is_uri = colon and scheme[:1].isalpha() and scheme.isascii() and scheme.replace("+", "").isalnum()
    return title if is_uri and not title.startswith(TITLED) and " " not in title else TITLED + quote(title, safe="")


def _only(block: JsonObject, place: str, *known: str) -> None:
    only(block, place, *known, "cache_control")
