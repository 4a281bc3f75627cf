"""Programs with a model that type checkers must accept; nothing runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_type

from trio_mcp import Client, SamplingProvider, run_agent
from trio_mcp.compose import AgentCall, AgentResult
from trio_mcp.errors import SampleRefused
from trio_mcp.providers import ScriptedProvider
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    JsonObject,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
)


class Mine:
    async def sample(self, request: CreateMessageRequestParams) -> CreateMessageResult:
        return CreateMessageResult(role="assistant", content=TextContent(text="hi"), model="mine")


async def later(call: AgentCall) -> bool:
    assert_type(call.client, Client)
    assert_type(call.tool, Tool)
    assert_type(call.arguments, JsonObject)
    return call.id == "1"


async def consent(request: CreateMessageRequestParams, server: str | None) -> bool | CreateMessageRequestParams:
    return request if server else False


def with_a_model(provider: SamplingProvider) -> list[Client]:
    return [
        Client.connect("https://example.org/mcp", sampling=Mine()),
        Client.connect(["server"], sampling=provider, approve_sample=consent),
        Client.connect(["server"], sampling=ScriptedProvider(["hi"]), approve_sample=lambda _request, _server: True),
        Client.connect(
            ["server"], on_sample=lambda request: f"{request.max_tokens}", sample_tools=True, max_handlers=8
        ),
        Client.connect(["server"], on_sample=Mine().sample, sample_context=True, handler_timeout=60),
    ]


async def agents(provider: SamplingProvider, clients: Sequence[Client]) -> None:
    result = await run_agent(provider, "hello", clients)
    assert_type(result, AgentResult)
    assert_type(result.text, str)
    assert_type(result.messages, tuple[SamplingMessage, ...])
    assert_type(result.usage.input_tokens, int | None)
    assert_type(result.stop_reason, str | None)
    picture = ImageContent(data="AAAA", mime_type="image/png")
    await run_agent(Mine(), [TextContent(text="What is this?"), picture], iter(clients), messages=result.messages)
    await run_agent(Mine(), None, (), messages=[], tool_choice=ToolChoice(mode="required"), stop_sequences=("END",))
    try:
        await run_agent(Mine(), picture, clients, approve=later, on_text=print, on_message=lambda message: None)
    except SampleRefused as refused:
        assert_type(refused.code, int)
    await run_agent(Mine(), picture, clients, approve=lambda call: call.tool.name == "add", tool_timeout=30)
