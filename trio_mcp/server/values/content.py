"""Content blocks from what a function returns, and JSON text of the rest.

Blocks stay blocks, wherever they are: in a list beside text and data, or as members of a dict, from which they are moved.

    "Done."                                text
    ["Done.", Image("a.png"), {"a": 1}]    text, image, text {"a":1}
    {"a": 1, "chart": Image("a.png")}      text {"a":1}, image
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Final, TypeAlias, TypeVar

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from ...base.named_tuples import NamedTuple
from ...protocol.shown_text import dump_shown
from ...runtime import ThreadLimiter
from ...types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    JsonValue,
    ResourceLink,
    TextContent,
)
from .media import FileToRead, Media, may_read, media_block
from .return_errors import NOT_JSON, ReturnError, check_not_coroutine
from .schema_checks import DeferredCheck

T = TypeVar("T")

Block: TypeAlias = TextContent | ImageContent | AudioContent | ResourceLink | EmbeddedResource

USE_MEDIA = "return Image(data=...), Audio(data=...) or File(data=..., name=...)"

BLOCKS: Final = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource, Media)
LEADING: Final = (*BLOCKS, str)
"""What nearly every list of blocks begins with; others take longer to recognize."""

MAX_DEPTH: Final = 255
"""How deep a value may be nested; JSON has the same limit."""

SIGNS: Final = ('"type":"text"', '"type":"image"', '"type":"audio"', '"type":"resource"', '"type":"resource_link"')
"""What the JSON text of a block holds. Looking for it costs next to nothing; looking through the value for blocks does not."""


class Apart(NamedTuple):
    """A value as JSON, the same as text, and the blocks that were in it."""

    rest: JsonValue
    text: str
    blocks: list[ContentBlock]

    def content(self, text: str | None = None) -> list[ContentBlock]:
        """Return the text and the blocks; no text if there was nothing but blocks."""
        shown: list[ContentBlock] = [TextContent(text=self.text if text is None else text)]
        return self.blocks if self.blocks and self.rest in ({}, []) else [*shown, *self.blocks]


def take_apart(value: object, encode: Callable[[object], JsonValue]) -> Apart:
    """Return a value as JSON, and the blocks that were in it.

    Args:
        encode: returns a value as JSON; raises `ReturnError` if it cannot.

    Raises:
        ReturnError: the value is not JSON, or a block is a member of a model, whose structure would break without it.
        FileToRead: one of the blocks has a file, and this is the event loop.
    """
    blocks: list[ContentBlock] = []
    try:
        rest = encode(value)
        text = json_text(rest)
    except ReturnError:
        kept = without_blocks(value, blocks)
        if not blocks:
            raise
    else:
        if not any(sign in text for sign in SIGNS):
            return Apart(rest, text, blocks)
        kept = without_blocks(value, blocks)
        if not blocks:
            return Apart(rest, text, blocks)
    rest = encode(kept)
    return Apart(rest, json_text(rest), blocks)


def sound_block(block: ContentBlock) -> ContentBlock:
    """Return a block that a function made; its data may be a `data:` URL, of which the type and the base64 are taken.

    Raises:
        ReturnError: its data is not base64.
    """
    match block:
        case ImageContent() | AudioContent():
            head, comma, data = block.data.partition(",")
            is_url = comma and head.lower().startswith("data:") and head.lower().endswith(";base64")
            if is_url:
                kind = head[len("data:") : -len(";base64")]
                block = block.model_copy(update={"data": data, "mime_type": kind or block.mime_type})
            check_base64(block.data, f"the {block.type} of type {block.mime_type!r:.64}")
        case EmbeddedResource(resource=BlobResourceContents(uri=uri, blob=blob)):
            check_base64(blob, f"the contents of {uri!r:.128}")
    return block


def check_base64(data: str, what: str) -> None:
    """Raise `ReturnError` unless `data` is base64 (RFC 4648, 4)."""
    try:
        a2b_base64(data, strict_mode=True)
    except ValueError as error:
        raise ReturnError(f"{what} is not base64 ({error}): return Image, Audio or File with the bytes") from None


def content_of(value: object) -> list[ContentBlock]:
    """Return the content for a value of which no structure is declared. Raises as `take_apart` does."""
    match value:
        case str():
            return [TextContent(text=value)]
        case None:
            return []
        case bytes() | bytearray() | memoryview():
            raise ReturnError(f"{NOT_JSON}: it is {type(value).__name__}; {USE_MEDIA}")
        case _ if isinstance(value, Block):
            return [sound_block(value)]
        case Media():
            return [media_block(value)]
        case list() | tuple() if value and isinstance(value[0], LEADING) and is_content(value):
            return [block for item in value for block in content_of(item)]
        case _:
            apart = take_apart(value, partial(as_json, by_alias=False))
            if apart.blocks and isinstance(value, list | tuple) and is_content(value):
                return [block for item in value for block in content_of(item)]
            return apart.content()


def is_content(values: Sequence[object]) -> bool:
    """Return whether a list is content of several parts, and not data: it has a block in it, or text alone."""
    return any(isinstance(value, BLOCKS) for value in values) or all(isinstance(value, str) for value in values)


class Moved:
    """Stands for a block that was moved."""


MOVED: Final = Moved()


def without_blocks(value: object, blocks: list[ContentBlock], depth: int = 0) -> object:
    """Return a copy of a value without the blocks in it, and append those to `blocks`; `MOVED` for a block."""
    if depth > MAX_DEPTH:
        raise ReturnError(f"{NOT_JSON}: it is nested deeper than {MAX_DEPTH}")
    match value:
        case _ if isinstance(value, Block):
            blocks.append(sound_block(value))
        case Media():
            blocks.append(media_block(value))
        case dict():
            kept = ((key, without_blocks(item, blocks, depth + 1)) for key, item in value.items())
            return {key: item for key, item in kept if item is not MOVED}
        case list() | tuple() | set() | frozenset():
            items = [without_blocks(item, blocks, depth + 1) for item in value]
            return [item for item in items if item is not MOVED]
        case _:
            check_members(value, members_of(value), depth)
            return value
    return MOVED


def members_of(value: object) -> Mapping[str, object]:
    """Return the members of a model or a dataclass."""
    if isinstance(value, BaseModel):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in fields(value)}
    return {}


def check_members(owner: object, members: Mapping[str, object], depth: int) -> None:
    """Raise `ReturnError` if a member of a model holds a block."""
    for name, member in members.items():
        found: list[ContentBlock] = []
        without_blocks(member, found, depth + 1)
        if found:
            raise ReturnError(block_in_structure(type(owner), name))


def block_in_structure(owner: type, name: str) -> str:
    """Return the text of the error for a block that is a member of a structure."""
    return (
        f"{owner.__name__}.{name} holds a content block, which a structure cannot; return it beside the structure, "
        f"as tuple[{owner.__name__}, Image] or in a ToolResult(content=[...], structured_content=...)"
    )


# reading files


class FileRead(DeferredCheck[T]):
    """The conversion of a result with files, which has to be made in a thread."""

    async def decide(self, threads: ThreadLimiter, caller: Hashable | None = None) -> T:
        """Read the files and convert the result. A cancel abandons a read that hangs, which counts until it returns.

        Raises:
            LimitExceeded: abandoned threads hold the whole limit; or a file is too large.
        """
        return await threads.run(self._finish, caller)


def reading_files(convert: Callable[[object], T]) -> Callable[[object], T]:
    """Return a conversion that raises `FileRead` for a value with files, and otherwise is this one."""
    return partial(convert_or_read, convert)


def convert_or_read(convert: Callable[[object], T], value: object) -> T:
    """Return a converted value. Raises `FileRead`, which converts it in a thread, if there are files to read."""
    try:
        return convert(value)
    except FileToRead:
        pass
    raise FileRead(partial(convert_in_thread, convert, value))


def convert_in_thread(convert: Callable[[object], T], value: object) -> T:
    """Return a converted value with its files read."""
    # A thread has a copy of the context, so that this is not seen elsewhere.
    may_read.set(True)
    return convert(value)


# JSON


def to_json_text(value: object, *, by_alias: bool = True) -> str:
    """Return any value as JSON text.

    Raises:
        ReturnError: JSON cannot represent it.
    """
    return json_text(as_json(value, by_alias=by_alias))


def as_json(value: object, *, by_alias: bool = True) -> JsonValue:
    try:
        content: JsonValue = to_jsonable_python(value, by_alias=by_alias, inf_nan_mode="constants")
    except ValueError as error:
        check_not_coroutine(value)
        raise ReturnError(f"{NOT_JSON}: {error}") from None
    return content


def json_text(value: JsonValue) -> str:
    try:
        return dump_shown(value, "result", kept=frozenset()).decode()
    except ValueError as error:
        raise ReturnError(f"{NOT_JSON}: {error}") from None
