"""The messages of a question to a model: prompts of text and media, and what a question adds to the last message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias, cast

import trio

from ...base.checks import mistake
from ...protocol.conversation import blocks_of
from ...runtime import ThreadLimiter
from ...types import (
    AudioContent,
    ImageContent,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    ToolResultContent,
)
from ..values.media import Audio, Image

PromptPart: TypeAlias = str | TextContent | ImageContent | AudioContent | Image | Audio
"""A part of a prompt: a text, a content block, or an image or audio of a file or of bytes."""

Prompt: TypeAlias = PromptPart | Sequence[PromptPart]
"""What a model is asked: a part, or a list of them."""

PARTS: Final = (str, TextContent, ImageContent, AudioContent, Image, Audio)
MAX_READERS: Final = 20
"""Threads that read the files of prompts."""

_READERS: trio.lowlevel.RunVar[ThreadLimiter] = trio.lowlevel.RunVar("files of prompts")

EXPECTED: Final = "text, a text, image or audio block, an Image or Audio, or a list of those"


def prompt_parts(prompt: Prompt) -> list[PromptPart]:
    """Return the parts of a prompt.

    Raises:
        TypeError: one is of another type.
        ValueError: there is none.
    """
    given: object = prompt
    parts: list[object] = list(given) if isinstance(given, list | tuple) else [given]
    for part in parts:
        if not isinstance(part, PARTS):
            raise TypeError(mistake("the prompt", EXPECTED, part))
    if not parts:
        raise ValueError("the prompt has no parts")
    return cast("list[PromptPart]", parts)


async def prompt_message(parts: Sequence[PromptPart]) -> SamplingMessage:
    """Return a prompt as a message of the user. Files are read in a thread; a cancel abandons a read that hangs.

    Raises:
        OSError: a file cannot be read.
        ValueError: it is not a regular file.
        LimitExceeded: it is larger than `MAX_FILE`, or `MAX_READERS` reads hang.
    """
    if any(isinstance(part, Image | Audio) and part.path is not None for part in parts):
        try:
            readers = _READERS.get()
        except LookupError:
            readers = ThreadLimiter(MAX_READERS)
            _READERS.set(readers)
        return await readers.run(lambda: user_message(parts))
    return user_message(parts)


def user_message(parts: Sequence[PromptPart]) -> SamplingMessage:
    """Return a prompt as a message of the user; reads the files."""
    blocks = [part_block(part) for part in parts]
    return SamplingMessage(role="user", content=blocks[0] if len(blocks) == 1 else blocks)


def part_block(part: PromptPart) -> SamplingContentBlock:
    if isinstance(part, str):
        return TextContent(text=part)
    return part.block() if isinstance(part, Image | Audio) else part


def with_texts(messages: Sequence[SamplingMessage], *texts: str) -> list[SamplingMessage]:
    """Return a conversation with more text for the model at its end.

    The texts are further blocks of a copy of the last message; or a message of their own after one of the assistant, or after
    the results of tools, beside which nothing else may stand (L-SMP-3b).
    """
    added: list[SamplingContentBlock] = [TextContent(text=text) for text in texts]
    if not added:
        return list(messages)
    last = messages[-1]
    blocks = blocks_of(last.content)
    if last.role != "user" or any(isinstance(block, ToolResultContent) for block in blocks):
        return [*messages, SamplingMessage(role="user", content=added[0] if len(added) == 1 else added)]
    return [*messages[:-1], last.model_copy(update={"content": [*blocks, *added]})]
