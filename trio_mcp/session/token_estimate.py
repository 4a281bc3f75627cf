"""An estimate of how many tokens a sample used, where the client does not report it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

from .. import types

if TYPE_CHECKING:
    from ..types import (
        AudioContent,
        CreateMessageResult,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        SamplingMessage,
        TextContent,
        ToolResultContent,
        ToolUseContent,
    )

Block: TypeAlias = (
    "TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | EmbeddedResource | ResourceLink"
)

CHARACTERS_PER_TOKEN = 4
"""For English text, as the large providers document it."""

TOKENS_PER_MEDIUM = 1_600
"""Tokens of an image or a recording, whose size in base64 says little: about what a large picture costs."""


def estimate_tokens(params: types.CreateMessageRequestParams, result: types.CreateMessageResult | None) -> int:
    """Return a quarter of the characters of the messages sent, the system prompt and the answer, rounded up."""
    messages: list[SamplingMessage | CreateMessageResult] = [*params.messages]
    if result is not None:
        messages.append(result)
    length = len(params.system_prompt or "")
    for message in messages:
        blocks = message.content if isinstance(message.content, list) else [message.content]
        length += sum(map(characters, blocks))
    return -(-length // CHARACTERS_PER_TOKEN)


def characters(block: Block) -> int:
    """Return how many characters of the model's context a block takes."""
    match block:
        case types.TextContent(text=text) | types.EmbeddedResource(resource=types.TextResourceContents(text=text)):
            return len(text)
        case types.ToolUseContent(name=name, input=arguments):
            return len(name) + len(json.dumps(arguments))
        case types.ToolResultContent(content=content, structured_content=structured):
            return sum(map(characters, content)) + (0 if structured is None else len(json.dumps(structured)))
        case types.ResourceLink(uri=uri):
            # The client may put the resource itself into the context, but its size is not known here.
            return len(uri)
        case _:
            return TOKENS_PER_MEDIUM * CHARACTERS_PER_TOKEN
