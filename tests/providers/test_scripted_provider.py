"""A provider that answers from a script: each kind of answer, in order, and what becomes of a script that is too short."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from connected import connected
from trio.testing import MockClock

from trio_mcp import Server
from trio_mcp.errors import ProviderError, ProviderErrorKind
from trio_mcp.providers import ScriptedProvider
from trio_mcp.server import Context
from trio_mcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
    ToolUseContent,
)


def asking(text: str, max_tokens: int = 9) -> CreateMessageRequestParams:
    return CreateMessageRequestParams(
        messages=[SamplingMessage(role="user", content=TextContent(text=text))], max_tokens=max_tokens
    )


def whole(*blocks: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=list(blocks), model="mine")


async def test_it_gives_its_answers_in_order_and_keeps_what_was_asked() -> None:
    given = whole(ToolUseContent(id="1", name="look", input={}))
    provider = ScriptedProvider(["one", given])
    first, second = await provider.sample(asking("a")), await provider.sample(asking("b"))
    assert first.content == TextContent(text="one")
    assert (first.model, first.stop_reason, first.role) == ("scripted", "endTurn", "assistant")
    assert second is given
    assert provider.requests == [asking("a"), asking("b")]
    assert hasattr(provider, "stream")


async def test_an_answer_may_be_a_function_of_the_request_plain_or_async() -> None:
    async def later(request: CreateMessageRequestParams) -> str:
        await trio.lowlevel.checkpoint()
        return f"later {request.max_tokens}"

    provider = ScriptedProvider([lambda request: f"at once {request.max_tokens}", later, lambda _request: KeyError(7)])
    assert (await provider.sample(asking("a", 1))).content == TextContent(text="at once 1")
    assert (await provider.sample(asking("b", 2))).content == TextContent(text="later 2")
    with pytest.raises(KeyError):
        await provider.sample(asking("c"))


async def test_an_exception_is_raised_and_the_next_answer_is_the_next() -> None:
    failure = ProviderError("no", kind=ProviderErrorKind.RATE_LIMITED)
    provider = ScriptedProvider([failure, "yes"])
    with pytest.raises(ProviderError) as caught:
        await provider.sample(asking("a"))
    assert caught.value is failure
    assert (await provider.sample(asking("a"))).content == TextContent(text="yes")


async def test_a_script_that_is_too_short_fails_with_what_was_asked() -> None:
    provider = ScriptedProvider(iter(["one"]))
    await provider.sample(asking("first"))
    with pytest.raises(ProviderError, match="second") as caught:
        await provider.sample(asking("second"))
    assert caught.value.kind is ProviderErrorKind.REJECTED
    assert len(provider.requests) == 2


async def test_a_stream_shows_each_text_block() -> None:
    picture = ImageContent(data="AAAA", mime_type="image/png")
    provider = ScriptedProvider(["one", whole(TextContent(text="a"), picture, TextContent(text="b")), KeyError(1)])
    shown: list[str] = []
    await provider.stream(asking("x"), shown.append)
    await provider.stream(asking("x"), shown.append)
    with pytest.raises(KeyError):
        await provider.stream(asking("x"), shown.append)
    assert shown == ["one", "a", "b"]


async def test_requests_at_once_get_one_answer_each() -> None:
    provider = ScriptedProvider([str(number) for number in range(20)])
    answers: list[Any] = []

    async def ask() -> None:
        answers.append((await provider.sample(asking("x"))).content)

    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(ask)
    assert sorted(int(answer.text) for answer in answers) == list(range(20))


async def test_a_cancel_ends_an_answer_that_takes_long(autojump_clock: MockClock) -> None:
    async def never(_request: CreateMessageRequestParams) -> str:
        await trio.sleep_forever()
        raise AssertionError

    provider = ScriptedProvider([never, "next"])
    with trio.move_on_after(1) as scope:
        await provider.sample(asking("x"))
    assert scope.cancelled_caught
    assert (await provider.sample(asking("x"))).content == TextContent(text="next")


def test_its_repr_counts() -> None:
    assert repr(ScriptedProvider(["secret"])) == "<ScriptedProvider: script has 1 answer, 0 requests>"


async def test_a_client_answers_its_server_with_it(mode: str) -> None:
    server = Server("s")

    @server.tool
    async def haiku(ctx: Context, about: str) -> str:
        return (await ctx.sample(f"A haiku about {about}.")).text

    provider = ScriptedProvider(["Rain."])
    async with connected(server, mode=mode, sampling=provider) as client:
        assert (await client.call_tool("haiku", {"about": "rain"})).text == "Rain."
    assert len(provider.requests) == 1
