"""`limit=` of a tool whose calls make further calls of it, in tool loops: a call never waits for the place of its caller."""

from __future__ import annotations

import pytest
import trio

from trio_mcp import Context, Server
from trio_mcp.testing import MockClient, tool_use
from trio_mcp.types import CreateMessageRequestParams, SamplingMessage, TextContent, ToolResultContent

both_eras = pytest.mark.parametrize("era", ["modern", "legacy"])


def result_texts(messages: tuple[SamplingMessage, ...]) -> list[str]:
    blocks = [
        block
        for message in messages
        for block in (message.content if isinstance(message.content, list) else [message.content])
    ]
    results = [block for block in blocks if isinstance(block, ToolResultContent)]
    return [each.text for result in results for each in result.content if isinstance(each, TextContent)]


def depth(params: CreateMessageRequestParams) -> int:
    block = params.messages[0].content
    assert isinstance(block, TextContent)
    return int(block.text)


def recursive(limit: int, depths: int, *, asks: bool = False) -> Server:
    """A server with the tool `dig`, which loops over itself until a depth, and returns what its innermost run did."""
    server = Server("s")

    @server.tool(limit=limit, queue=10, token_budget=10**6)
    async def dig(at: int, ctx: Context) -> str:
        if at == depths:
            return (await ctx.elicit("?", int)).action if asks else "bottom"
        found = await ctx.run_tool_loop(str(at + 1), ["dig"])
        return result_texts(found.messages)[0]

    return server


def digger(era: str, **options: object) -> MockClient:
    def model(params: CreateMessageRequestParams) -> object:
        return "done" if len(params.messages) > 1 else tool_use("dig", at=depth(params))

    return MockClient(samples=model, era=era, **options)  # type: ignore[arg-type]


@both_eras
async def test_a_tool_whose_only_place_its_caller_holds_is_busy_at_once(era: str) -> None:
    with trio.fail_after(5):
        result = await digger(era).call((recursive(1, 1), "dig"), at=0)
    assert "dig is busy" in result.text
    assert "made by a call of dig" in result.text


@both_eras
async def test_a_tool_calls_itself_as_often_as_there_are_places(era: str) -> None:
    with trio.fail_after(5):
        assert (await digger(era).call((recursive(3, 2), "dig"), at=0)).text == "bottom"
        assert "dig is busy" in (await digger(era).call((recursive(2, 2), "dig"), at=0)).text


@both_eras
async def test_calls_that_hold_all_places_do_not_wait_for_each_other(era: str) -> None:
    server, texts = recursive(2, 1), list[str]()

    async def call() -> None:
        texts.append((await digger(era).call((server, "dig"), at=0)).text)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            nursery.start_soon(call)
    assert all(text == "bottom" or "dig is busy" in text for text in texts)
    assert len(texts) == 2


async def test_resumed_calls_do_not_wait_for_a_place_while_they_hold_one_of_the_same_tool() -> None:
    server, texts = recursive(2, 1, asks=True), list[str]()

    async with trio.open_nursery() as nursery:
        both_asked = trio.Event()

        async def call_second() -> None:
            async def answer(_params: object) -> int:
                await trio.lowlevel.checkpoint()
                both_asked.set()
                return 1

            texts.append((await digger("modern", elicits=[answer]).call((server, "dig"), at=0)).text)

        async def answer(_params: object) -> int:
            nursery.start_soon(call_second)
            await both_asked.wait()
            return 1

        with trio.fail_after(5):
            texts.append((await digger("modern", elicits=[answer]).call((server, "dig"), at=0)).text)
    assert texts == ["accept", "accept"]
