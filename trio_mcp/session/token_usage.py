"""How many tokens a sample used: what the client reports, or else an estimate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from .. import types
from ..types import JsonValue

if TYPE_CHECKING:
    from ..types import (
        AudioContent,
        CreateMessageRequestParams,
        CreateMessageResult,
        EmbeddedResource,
        ImageContent,
        ResourceLink,
        SamplingMessage,
        TextContent,
        ToolResultContent,
        ToolUseContent,
    )

TokenEstimate: TypeAlias = Callable[["CreateMessageRequestParams", "CreateMessageResult | None"], int]
"""Estimates the tokens of a request for a sample and of its answer; of the request alone where there is no answer."""

Block: TypeAlias = (
    "TextContent | ImageContent | AudioContent | ToolUseContent | ToolResultContent | EmbeddedResource | ResourceLink"
)

CHARACTERS_PER_TOKEN = 4
"""For English text, as the large providers document it."""

TOKENS_PER_MEDIUM = 1_600
"""Tokens of an image or a recording, whose size in base64 says little: about what a large picture costs."""

TOTALS = ("totalTokens", "total_tokens")
INPUTS = ("inputTokens", "input_tokens", "promptTokens", "prompt_tokens")
OUTPUTS = ("outputTokens", "output_tokens", "completionTokens", "completion_tokens")


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """The tokens that were reported for one answer of a model, or for several of them.

    Attributes:
        input_tokens, output_tokens: what the model read and wrote; None if no answer had the number.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None

    def __add__(self, other: TokenUsage) -> TokenUsage:
        return TokenUsage(
            add_counts(self.input_tokens, other.input_tokens), add_counts(self.output_tokens, other.output_tokens)
        )


def add_counts(one: int | None, other: int | None) -> int | None:
    """Return the sum of two counts, of which one may be unknown; None if both are."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


def usage_of(result: CreateMessageResult) -> TokenUsage:
    """Return the tokens that `_meta.usage` of an answer reports, in any of the usual spellings."""
    usage = (result.meta or {}).get("usage")
    if not isinstance(usage, dict):
        return TokenUsage()
    return TokenUsage(first_count(usage, INPUTS), first_count(usage, OUTPUTS))


def used_tokens(params: CreateMessageRequestParams, result: CreateMessageResult | None, estimate: TokenEstimate) -> int:
    """Return the tokens that a sample used: those that `_meta.usage` of its result reports, if complete, or else the estimate."""
    reported = None if result is None else reported_tokens((result.meta or {}).get("usage"))
    return estimate(params, result) if reported is None else reported


def reported_tokens(usage: JsonValue) -> int | None:
    """Return the tokens that a client reports. No revision defines this member: clients pass on what their provider reports."""
    if not isinstance(usage, dict):
        return None
    total = first_count(usage, TOTALS)
    if total is not None:
        return total
    inputs, outputs = first_count(usage, INPUTS), first_count(usage, OUTPUTS)
    return None if inputs is None or outputs is None else inputs + outputs


def first_count(usage: Mapping[str, JsonValue], names: tuple[str, ...]) -> int | None:
    """Return the first of these members that is a count. A negative number is none: it would give tokens back."""
    for name in names:
        value = usage.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def estimate_tokens(params: CreateMessageRequestParams, result: CreateMessageResult | None) -> int:
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
