"""Asks a model of each API in every way, also those that end badly; run with `-W error`, it prints nothing but its last line."""

from __future__ import annotations

import gc
import sys

import trio
from model_api import (
    Reply,
    anthropic_answer,
    anthropic_events,
    model_api,
    openai_answer,
    openai_events,
    says,
    streams,
    unused_url,
)

from trio_mcp.base.backoff import Backoff
from trio_mcp.errors import ProviderError
from trio_mcp.providers import AnthropicProvider, OpenAIProvider
from trio_mcp.types import CreateMessageRequestParams, SamplingMessage, TextContent

REQUEST = CreateMessageRequestParams(
    messages=[SamplingMessage(role="user", content=TextContent(text="hi"))], max_tokens=9
)
APIS = [(OpenAIProvider, openai_answer(), openai_events()), (AnthropicProvider, anthropic_answer(), anthropic_events())]


def show_nothing(text: str) -> None:
    """Take a piece of an answer."""


async def fails(provider, *, streamed: bool = False) -> None:
    try:
        await (provider.stream(REQUEST, show_nothing) if streamed else provider.sample(REQUEST))
    except ProviderError:
        return
    raise AssertionError("there was an answer")


async def cancelled(provider, *, streamed: bool, api) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(*((provider.stream, REQUEST, show_nothing) if streamed else (provider.sample, REQUEST)))
        await api.hangs.wait()
        nursery.cancel_scope.cancel()
    await api.left.wait()


async def main(kind: type, answer: dict, events: list[bytes]) -> None:
    def make(url: str):
        return kind(base_url=f"{url}/v1", api_key="none", max_retries=0, backoff=Backoff(first=0))

    listed = says({"data": [{"id": "model-1"}]})
    async with model_api(listed, says(answer), streams(events), says({}, 500), says(answer)) as api:
        async with make(api.url) as provider:
            await provider.sample(REQUEST)
            await provider.stream(REQUEST, show_nothing)
            await fails(provider)
        await provider.sample(REQUEST)
    broken = [Reply([b"{"], then="break"), streams(events[:3], "break"), streams(events[:3]), Reply([b"x" * 99], 400)]
    async with model_api(listed, *broken) as api:
        provider = make(api.url)
        await fails(provider)
        await fails(provider, streamed=True)
        await fails(provider, streamed=True)
        await fails(provider)
    for streamed in (False, True):
        async with model_api(listed, streams(events[:5], "hang")) as api:
            await cancelled(make(api.url), streamed=streamed, api=api)
    await fails(make(await unused_url()))


for each in APIS:
    trio.run(main, *each)
gc.collect()
print("done", file=sys.stderr)
