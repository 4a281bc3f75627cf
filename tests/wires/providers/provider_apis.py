"""The APIs of both providers: how they answer, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from model_api import anthropic_answer, anthropic_events, openai_answer, openai_events

from trio_mcp.providers import AnthropicProvider, OpenAIProvider
from trio_mcp.providers.api import RETRY_BACKOFF
from trio_mcp.types import (
    CreateMessageRequestParams,
    SamplingMessage,
    TextContent,
    Tool,
    ToolUseContent,
)

KEY = "sk-very-secret-0123456789"
AT_ONCE = replace(RETRY_BACKOFF, first=0)


@dataclass(frozen=True)
class Api:
    """One of the two APIs: its provider, and how it answers."""

    name: str
    make: Callable[..., Any]
    path: str
    answer: dict[str, Any]
    call: dict[str, Any]
    events: list[bytes]

    def provider(self, url: str, model: str | None = "model-1", **options: Any) -> Any:
        options = {"api_key": KEY, "backoff": AT_ONCE, **options}
        return self.make(model, base_url=f"{url}/v1", **options)


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
OPENAI = Api(
    "openai",
    OpenAIProvider,
    "/v1/chat/completions",
    openai_answer(),
    openai_answer("Looking.", calls=[CALL], reason="tool_calls"),
    openai_events(),
)
ANTHROPIC = Api(
    "anthropic",
    AnthropicProvider,
    "/v1/messages",
    anthropic_answer(),
    anthropic_answer(
        {"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
        reason="tool_use",
    ),
    anthropic_events(),
)
APIS = [OPENAI, ANTHROPIC]
both = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)

REQUEST = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="hi"))], max_tokens=9, include_context="thisServer"
)
WITH_TOOL = REQUEST.model_copy(update={"tools": [Tool(name="look", input_schema={"type": "object"})]})
CALLED = [TextContent(text="Looking."), ToolUseContent(id="c1", name="look", input={"at": 1})]
