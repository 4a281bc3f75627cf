"""Programs with providers of models that type checkers must accept; nothing runs them."""

from __future__ import annotations

from typing import assert_type

from trio_mcp import Backfill, RelayServer, SamplingProvider, Server
from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.providers import AnthropicProvider, Backoff, OpenAIProvider, ScriptedProvider
from trio_mcp.relay import Connect
from trio_mcp.sampling import StreamingProvider
from trio_mcp.types import CreateMessageRequestParams, CreateMessageResult, TextContent
from trio_mcp_transports.http import McpApp, asgi_app

ANSWER = CreateMessageResult(role="assistant", content=TextContent(text="hi"), model="mine")


async def later(request: CreateMessageRequestParams) -> CreateMessageResult:
    return ANSWER


def providers() -> list[StreamingProvider]:
    return [
        AnthropicProvider("large", api_key="key", models=["small"], max_retries=0, timeout=60),
        OpenAIProvider(base_url="http://127.0.0.1:11434/v1", backoff=Backoff(first=1)),
        ScriptedProvider(["text", ANSWER, KeyError(), lambda request: f"{request.max_tokens}", later]),
    ]


def servers() -> list[Server]:
    return [Server("s", sampling=provider) for provider in providers()]


def proxy_app(connect: Connect) -> McpApp:
    return asgi_app(RelayServer(connect, Backfill(ScriptedProvider(["text"]))))


async def ask(provider: SamplingProvider, request: CreateMessageRequestParams) -> None:
    async with OpenAIProvider("large") as openai:
        assert_type(openai, OpenAIProvider)
        assert_type(await openai.stream(request, print), CreateMessageResult)
    async with AnthropicProvider("large") as anthropic:
        assert_type(anthropic, AnthropicProvider)
    scripted = ScriptedProvider(())
    assert_type(scripted.requests, list[CreateMessageRequestParams])
    try:
        assert_type(await provider.sample(request), CreateMessageResult)
    except ProviderError as error:
        assert_type(error.kind, ProviderErrorKind)
        assert_type(error.status, int | None)
        assert_type(error.retry_after, float | None)
        assert_type(error.public_text, str)
