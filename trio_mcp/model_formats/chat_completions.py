"""Messages of OpenAI's chat completions, which most servers of local models take too."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from ..types import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    JsonObject,
    JsonValue,
    ResourceLink,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
)
from .blocks import (
    BASE64,
    ModelMessage,
    as_blocks,
    as_object,
    blocks_of,
    blocks_to_show,
    cannot,
    data_url,
    function_call,
    json_text,
    only,
    string,
)

AUDIO_FORMATS: Final = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
AUDIO_TYPES: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def to_openai(messages: Sequence[SamplingMessage]) -> list[JsonObject]:
    """Return the messages as OpenAI's chat completions take them; each tool result is a message.

    Annotations and `_meta` are left out. A tool result is text: an error begins with "Error: ", structured content is JSON unless
    a block already is, a text resource is its text, and a link is its JSON. Images, audio and PDFs of tool results follow in a
    message of the user. The texts of the assistant precede its tool calls.

    Raises:
        ValueError: a block has no counterpart: audio that is neither WAV nor MP3, another binary resource, an image or audio of
            the assistant, a tool call of the user or a tool result of the assistant. The text begins with its place, as in
            `messages[2].content[0]`.
    """
    written: list[JsonObject] = []
    for index, message in enumerate(messages):
        write = _write_assistant if message.role == "assistant" else _write_user
        written += write(blocks_of(message), f"messages[{index}].content")
    return written


def _write_assistant(blocks: Sequence[SamplingContentBlock], place: str) -> list[JsonObject]:
    texts: list[str] = []
    calls: list[JsonValue] = []
    for position, block in enumerate(blocks):
        match block:
            case TextContent():
                texts.append(block.text)
            case ToolUseContent():
                function: JsonObject = {"name": block.name, "arguments": json_text(block.input)}
                calls.append({"id": block.id, "type": "function", "function": function})
            case _:
                raise cannot(f"{place}[{position}]", f"the assistant has no {block.type!r} block in chat completions")
    content = _text_content(texts)
    if not calls:
        return [{"role": "assistant", "content": content}]
    return [{"role": "assistant", "content": content or None, "tool_calls": calls}]


def _write_user(blocks: Sequence[SamplingContentBlock], place: str) -> list[JsonObject]:
    written: list[JsonObject] = []
    parts: list[JsonObject] = []
    for position, block in enumerate(blocks):
        where = f"{place}[{position}]"
        if isinstance(block, ToolUseContent):
            raise cannot(where, "a message of the user has a tool call")
        if isinstance(block, ToolResultContent):
            message, media = _write_result(block, where)
            written.append(message)
            parts += media
        else:
            parts.append(_write_part(block, where))
    if parts or not written:
        written.append({"role": "user", "content": _content(parts)})
    return written


def _write_result(result: ToolResultContent, place: str) -> tuple[JsonObject, list[JsonObject]]:
    """Return the message of the tool, which has only text, and the parts for a message of the user."""
    texts: list[str] = []
    media: list[JsonObject] = []
    for position, block in enumerate(blocks_to_show(result)):
        part = _write_part(block, f"{place}.content[{position}]")
        text = part.get("text")
        if isinstance(text, str):
            texts.append(text)
        else:
            media.append(part)
    if result.is_error:
        texts = [f"Error: {texts[0]}", *texts[1:]] if texts else ["Error"]
    if media:
        media.insert(0, _text_part(f"From the result of the tool call {result.tool_use_id}:"))
    return {"role": "tool", "tool_call_id": result.tool_use_id, "content": _text_content(texts)}, media


def _write_part(block: ContentBlock, place: str) -> JsonObject:
    match block:
        case TextContent():
            return _text_part(block.text)
        case ImageContent():
            return _image_part(block.data, block.mime_type)
        case AudioContent():
            return _audio_part(block.data, block.mime_type, place)
        case EmbeddedResource():
            return _resource_part(block, place)
        case ResourceLink() | UnknownContent():
            return _text_part(json_text(block.wire()))


def _resource_part(block: EmbeddedResource, place: str) -> JsonObject:
    resource = block.resource
    if isinstance(resource, TextResourceContents):
        return _text_part(resource.text)
    mime_type = (resource.mime_type or "").lower()
    if mime_type.startswith("image/"):
        return _image_part(resource.blob, mime_type)
    if mime_type.startswith("audio/"):
        return _audio_part(resource.blob, mime_type, place)
    if mime_type == "application/pdf":
        file: JsonObject = {"filename": resource.uri, "file_data": data_url(mime_type, resource.blob)}
        return {"type": "file", "file": file}
    raise cannot(place, f"chat completions have no resources of the type {resource.mime_type!r}")


def _text_part(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _image_part(data: str, mime_type: str) -> JsonObject:
    return {"type": "image_url", "image_url": {"url": data_url(mime_type, data)}}


def _audio_part(data: str, mime_type: str, place: str) -> JsonObject:
    if mime_type not in AUDIO_FORMATS:
        raise cannot(place, f"chat completions have no audio of the type {mime_type!r}, only WAV and MP3")
    return {"type": "input_audio", "input_audio": {"data": data, "format": AUDIO_FORMATS[mime_type]}}


def _text_content(texts: list[str]) -> JsonValue:
    return _content([_text_part(text) for text in texts])


def _content(parts: list[JsonObject]) -> JsonValue:
    """Return a plain text where there is only one: some servers of local models take nothing else."""
    if not parts:
        return ""
    only_text = parts[0].get("text") if len(parts) == 1 else None
    return only_text or list[JsonValue](parts)


def from_openai(messages: Sequence[ModelMessage]) -> list[SamplingMessage]:
    """Return messages of OpenAI's chat completions as MCP has them; the values of the library `openai` may be among them.

    Tool messages that follow each other become one message of the user. `detail` and `prompt_cache_breakpoint` are left out: they
    are about costs, not content.

    Raises:
        ValueError: a message, part or member has no counterpart: system messages, refusals, files, images by URL, audio of the
            assistant; or the arguments of a tool call are not a JSON object. The text begins with its place, as in
            `messages[2].content[0]`.
    """
    read: list[SamplingMessage] = []
    placed = [(f"messages[{index}]", as_object(each, f"messages[{index}]")) for index, each in enumerate(messages)]
    for is_tool, group in groupby(placed, lambda pair: pair[1].get("role") == "tool"):
        if is_tool:
            results: list[SamplingContentBlock] = [_read_result(message, place) for place, message in group]
            read.append(SamplingMessage(role="user", content=results))
        else:
            read += [_read_message(message, place) for place, message in group]
    return read


def _read_message(message: JsonObject, place: str) -> SamplingMessage:
    match message.get("role"):
        case "user":
            return SamplingMessage(role="user", content=_read_user(message, place))
        case "assistant":
            return SamplingMessage(role="assistant", content=_read_assistant(message, place))
        case "system" | "developer":
            raise cannot(place, "MCP has no system messages; the text belongs in the system prompt of the request")
        case role:
            raise cannot(place, f"MCP has no role {role!r}")


def _read_result(message: JsonObject, place: str) -> ToolResultContent:
    only(message, place, "role", "tool_call_id", "content")
    blocks = as_blocks(message.get("content"), f"{place}.content")
    content: list[ContentBlock] = [_read_text(part, f"{place}.content[{i}]") for i, part in enumerate(blocks)]
    return ToolResultContent(tool_use_id=string(message, "tool_call_id", place), content=content)


def _read_user(message: JsonObject, place: str) -> list[SamplingContentBlock]:
    only(message, place, "role", "content")
    blocks = as_blocks(message.get("content"), f"{place}.content")
    return [_read_part(part, f"{place}.content[{i}]") for i, part in enumerate(blocks)]


def _read_assistant(message: JsonObject, place: str) -> list[SamplingContentBlock]:
    only(message, place, "role", "content", "tool_calls")
    blocks = as_blocks(message.get("content"), f"{place}.content")
    texts: list[SamplingContentBlock] = [_read_text(part, f"{place}.content[{i}]") for i, part in enumerate(blocks)]
    return [*texts, *read_tool_calls(message, place)]


def read_tool_calls(message: JsonObject, place: str) -> list[ToolUseContent]:
    """Return the tool calls of a message of the assistant.

    Raises:
        ValueError: one is not a call of a function with a JSON object.
    """
    calls = as_blocks(message.get("tool_calls"), f"{place}.tool_calls")
    return [_read_call(call, f"{place}.tool_calls[{i}]") for i, call in enumerate(calls)]


def _read_call(call: JsonObject, place: str) -> ToolUseContent:
    if call.get("type", "function") != "function":
        raise cannot(place, f"MCP has no {call.get('type')!r} tool calls")
    function = as_object(call.get("function"), f"{place}.function")
    return function_call(call, "id", function, place)


def _read_part(part: JsonObject, place: str) -> TextContent | ImageContent | AudioContent:
    kind = part.get("type")
    if kind == "image_url":
        _only(part, place, "type", "image_url")
        image = as_object(part.get("image_url"), place)
        only(image, place, "url", "detail")
        head, base64, data = string(image, "url", place).partition(BASE64)
        if not base64 or not head.startswith("data:"):
            raise cannot(place, "MCP has no images by reference")
        return ImageContent(data=data, mime_type=head.removeprefix("data:"))
    if kind == "input_audio":
        _only(part, place, "type", "input_audio")
        audio = as_object(part.get("input_audio"), place)
        form = string(audio, "format", place)
        return AudioContent(data=string(audio, "data", place), mime_type=AUDIO_TYPES.get(form, f"audio/{form}"))
    return _read_text(part, place)


def _read_text(part: JsonObject, place: str) -> TextContent:
    kind = part.get("type")
    if kind != "text":
        raise cannot(place, f"MCP has no {kind!r} block here")
    _only(part, place, "type", "text")
    return TextContent(text=string(part, "text", place))


def _only(part: JsonObject, place: str, *known: str) -> None:
    only(part, place, *known, "prompt_cache_breakpoint")
