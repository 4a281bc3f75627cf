"""A model for tests that says exactly what the test tells it to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import trio

from trio_mcp.protocol.conversation import conversation_problem
from trio_mcp.testing import MockClient
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    JsonObject,
    JsonValue,
    Role,
    SamplingContentBlock,
    SamplingMessage,
    TextContent,
    ToolResultContent,
    ToolUseContent,
)

Said: TypeAlias = str | SamplingContentBlock | list[SamplingContentBlock] | CreateMessageResult | Exception
"""What a model answers, or raises."""


class ScriptedModel:
    """A provider that gives the answers of a list, and keeps what it was asked."""

    def __init__(self, *answers: Said | Callable[[CreateMessageRequestParams], Said]) -> None:
        self._answers = list(answers)
        self.asked: list[CreateMessageRequestParams] = []

    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        await trio.lowlevel.checkpoint()
        self.asked.append(request)
        said = self._answers.pop(0)
        given = said(request) if callable(said) else said
        if isinstance(given, Exception):
            raise given
        return given if isinstance(given, CreateMessageResult) else answer(given)


class StreamingModel(ScriptedModel):
    """The same, which shows each text character by character."""

    async def stream(self, request: CreateMessageRequestParams, on_text: Callable[[str], None]) -> CreateMessageResult:
        result = await self.sample(request)
        for block in blocks_of(result.content):
            if isinstance(block, TextContent):
                for piece in block.text:
                    on_text(piece)
        return result


def answer(said: Said, usage: JsonObject | None = None, stop_reason: str = "endTurn") -> CreateMessageResult:
    """Return an answer of the model `scripted`."""
    assert not isinstance(said, CreateMessageResult | Exception)
    content = [TextContent(text=said)] if isinstance(said, str) else said
    meta: JsonObject | None = None if usage is None else {"usage": usage}
    return CreateMessageResult(role="assistant", content=content, model="scripted", stop_reason=stop_reason, meta=meta)


def use(name: str, /, call_id: str = "1", **arguments: JsonValue) -> ToolUseContent:
    """Return a tool use."""
    return ToolUseContent(id=call_id, name=name, input=arguments)


def blocks_of(content: SamplingContentBlock | list[SamplingContentBlock]) -> list[SamplingContentBlock]:
    return content if isinstance(content, list) else [content]


def results_in(messages: Iterable[SamplingMessage]) -> list[ToolResultContent]:
    """Return the results of tools in a conversation."""
    blocks = [block for message in messages for block in blocks_of(message.content)]
    return [block for block in blocks if isinstance(block, ToolResultContent)]


def texts_of(results: Iterable[ToolResultContent]) -> list[str]:
    """Return the text of each result of a tool."""
    return ["".join(block.text for block in each.content if isinstance(block, TextContent)) for each in results]


def message(role: Role, *content: str | SamplingContentBlock) -> SamplingMessage:
    """Return a message of a text, or of blocks."""
    if len(content) == 1 and isinstance(content[0], str):
        return SamplingMessage(role=role, content=TextContent(text=content[0]))
    blocks = [TextContent(text=each) if isinstance(each, str) else each for each in content]
    return SamplingMessage(role=role, content=blocks)


def requests_of(client: MockClient) -> list[CreateMessageRequestParams]:
    """Return what the model of a client was asked."""
    found = [question.params for question in client.questions]
    return [params for params in found if isinstance(params, CreateMessageRequestParams)]


def check_conversation(messages: Sequence[SamplingMessage]) -> None:
    """Check that every tool use has its result, where it has to be."""
    assert conversation_problem(messages) is None
