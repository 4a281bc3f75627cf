"""How many tokens a sample used: what the client reports, or else an estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from ..types import CreateMessageRequestParams, CreateMessageResult, JsonValue

TokenEstimate: TypeAlias = Callable[[CreateMessageRequestParams, CreateMessageResult | None], int]
"""Estimates the tokens of a request for a sample and of its answer; of the request alone where there is no answer."""

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
