"""How many tokens a sample used: what the client says of it, or else an estimate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TypeAlias

from ..types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    EmbeddedResource,
    ImageContent,
    JsonValue,
    ResourceLink,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    ToolResultContent,
    ToolUseContent,
)

TokenEstimate: TypeAlias = Callable[[CreateMessageRequestParams, CreateMessageResult | None], int]
"""Estimates the tokens of a request for a sample and of its answer; of the request alone where there is no answer."""

Block: TypeAlias = (
    TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | EmbeddedResource | ResourceLink
)

CHARACTERS = 4
"""Characters of English text to a token: what the large providers tell their users to reckon with."""

MEDIA = 1_600
"""Tokens of an image or a recording, whose base64 tells little: about what a large picture costs."""

TOTALS = ("totalTokens", "total_tokens")
INPUTS = ("inputTokens", "input_tokens", "promptTokens", "prompt_tokens")
OUTPUTS = ("outputTokens", "output_tokens", "completionTokens", "completion_tokens")


def used_tokens(params: CreateMessageRequestParams, result: CreateMessageResult | None, estimate: TokenEstimate) -> int:
    """What a sample used: what `_meta.usage` of its result says, if that is complete, or else the estimate."""
    told = None if result is None else told_tokens((result.meta or {}).get("usage"))
    return estimate(params, result) if told is None else told


def told_tokens(usage: JsonValue) -> int | None:
    """What a client says was used. No revision defines this member: clients put there what their provider told them."""
    if not isinstance(usage, dict):
        return None
    total = number(usage, TOTALS)
    if total is not None:
        return total
    given, made = number(usage, INPUTS), number(usage, OUTPUTS)
    return None if given is None or made is None else given + made


def number(usage: Mapping[str, JsonValue], names: tuple[str, ...]) -> int | None:
    """The first of these members that is a count; a client cannot give anything back by counting below zero."""
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def estimate_tokens(params: CreateMessageRequestParams, result: CreateMessageResult | None) -> int:
    """A quarter of the characters of all messages that were sent, the system prompt and the answer, rounded up."""
    said = list(params.messages)
    if result is not None:
        said.append(SamplingMessage(role=result.role, content=result.content))
    found = len(params.system_prompt or "") + sum(characters(block) for message in said for block in blocks(message))
    return -(-found // CHARACTERS)


def blocks(message: SamplingMessage) -> list[Block]:
    return [*message.content] if isinstance(message.content, list) else [message.content]


def characters(block: Block) -> int:
    match block:
        case TextContent(text=text) | EmbeddedResource(resource=TextResourceContents(text=text)):
            return len(text)
        case ToolUseContent(name=name, input=given):
            return len(name) + len(json.dumps(given))
        case ToolResultContent(content=content, structured_content=structured):
            return sum(map(characters, content)) + (0 if structured is None else len(json.dumps(structured)))
        case ResourceLink(uri=uri):
            # The client may put the resource itself into the context, but its size is not known here.
            return len(uri)
        case _:
            return MEDIA * CHARACTERS
