"""`SampleExchange`: a question to a model and its answer, as messages that can become a part of another conversation.

plain         user: the prompt      assistant: the answer
structured    user: the prompt      assistant: tool_use of `__schema__` with the data     user: its result, "ok"
with tools    user: the prompt      assistant: the tool uses                              user: their results, by `close`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from ...model_formats import to_anthropic, to_openai
from ...protocol.strict_json import dumps
from ...sampling import SCHEMA_TOOL
from ...types import JsonObject, SamplingMessage, TextContent, ToolResultContent, ToolUseContent
from ..branching import freeze_messages
from .history import ToolOutput, answered

ACKNOWLEDGED: Final = "ok"
"""The result of the tool use that holds structured data. Short: it is read, and paid for, with each further question."""

_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class SampleExchange:
    """A question and its answer.

    Attributes:
        messages: two messages; three if the answer is structured, or if its tool uses have results.
    """

    messages: tuple[SamplingMessage, ...]

    def close(self, results: Mapping[str, ToolOutput]) -> SampleExchange:
        """Return the exchange with the results of its tool uses, by their ids.

        Args:
            results: as for `Context.add_tool_results`.

        Raises:
            ValueError: a tool use has no result, or a result no tool use; the message names the ids.
            TypeError: a result cannot be sent.
        """
        return SampleExchange(answered(self.messages, results))

    def to_openai(self) -> list[JsonObject]:
        """Return the messages as OpenAI's chat completions take them.

        Raises:
            ValueError: they have no place for one of the blocks.
        """
        return to_openai(self.messages)

    def to_anthropic(self) -> list[JsonObject]:
        """Return the messages as Anthropic's messages API takes them. Raises as `to_openai` does."""
        return to_anthropic(self.messages)


def plain_exchange(request: SamplingMessage, answer: SamplingMessage) -> SampleExchange:
    """Return a question and its answer as they are."""
    return SampleExchange(freeze_messages([request, answer]))


def structured_exchange(request: SamplingMessage, data: JsonObject, use: ToolUseContent | None) -> SampleExchange:
    """Return a question and its structured answer.

    Args:
        data: what the model gave.
        use: its tool use; None if it answered with JSON in a text.
    """
    if use is None:
        use = ToolUseContent(id=text_id(request, data), name=SCHEMA_TOOL, input=data)
    result = ToolResultContent(tool_use_id=use.id, content=[TextContent(text=ACKNOWLEDGED)])
    messages = (
        request,
        SamplingMessage(role="assistant", content=use),
        SamplingMessage(role="user", content=result),
    )
    return SampleExchange(freeze_messages(messages))


def text_id(request: SamplingMessage, data: JsonObject) -> str:
    """Return an id for a tool use that stands for an answer in text: the same in a replay, and another for another answer."""
    return f"schema_{sha256(dumps([request.wire(), data])).hexdigest()[:_DIGITS]}"
