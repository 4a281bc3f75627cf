"""`limit=` of a tool whose calls make further calls of it, in tool loops: a call never waits for the place of its caller."""

from __future__ import annotations

import trio
from scripted_model import results_in, texts_of
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Context, Server
from trio_mcp.testing import MockClient, tool_use
from trio_mcp.types import CreateMessageRequestParams


def recursive(limit: int, depths: int) -> Server:
    """A server with the tool `dig`, which loops over itself until a depth, and returns what its innermost run returned."""
    server = Server("s")

    @server.tool(limit=limit, queue=10)
    async def dig(at: int, ctx: Context) -> str:
        if at == depths:
            return "bottom"
        found = await ctx.run_tool_loop(str(at + 1), ["dig"])
        return texts_of(results_in(found.messages))[0]

    return server


def digger(era: str, **options: object) -> MockClient:
    def model(params: CreateMessageRequestParams) -> object:
        return "done" if len(params.messages) > 1 else tool_use("dig", at=int(params.messages[0].content.text))

    return MockClient(samples=model, era=era, **options)  # type: ignore[arg-type]


async def test_a_tool_whose_only_place_its_caller_holds_is_busy_at_once(mode: str) -> None:
    with trio.fail_after(5):
        result = await digger(mode).call((recursive(1, 1), "dig"), at=0)
    assert "dig is busy" in result.text
    assert "made by a call of dig" in result.text


async def test_a_tool_calls_itself_as_often_as_there_are_places(mode: str) -> None:
    with trio.fail_after(5):
        assert (await digger(mode).call((recursive(3, 2), "dig"), at=0)).text == "bottom"
        assert "dig is busy" in (await digger(mode).call((recursive(2, 2), "dig"), at=0)).text


async def test_calls_that_hold_all_places_do_not_wait_for_each_other(mode: str) -> None:
    server, texts = recursive(2, 1), list[str]()

    async def call() -> None:
        texts.append((await digger(mode).call((server, "dig"), at=0)).text)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            nursery.start_soon(call)
    assert all(text == "bottom" or "dig is busy" in text for text in texts)
    assert len(texts) == 2


async def test_resumed_calls_do_not_wait_for_a_place_while_they_hold_one_of_the_same_tool() -> None:
    """Two parked calls, of two runs each, go on while other calls hold both places: each gets one when one of those ends."""
    server, texts, running = Server("s"), list[str](), list[trio.Event]()
    parked, answers = 0, trio.Event()

    @server.tool(limit=2, queue=10)
    async def dig(at: int, ctx: Context) -> str:
        if at < 0:
            running.append(trio.Event())
            await running[-1].wait()
            return "held"
        if at == 1:
            return (await ctx.elicit("?", int)).action
        return texts_of(results_in((await ctx.run_tool_loop("1", ["dig"])).messages))[0]

    async def answer(_params: object) -> int:
        nonlocal parked
        parked += 1
        await answers.wait()
        return 1

    async def call(at: int) -> None:
        client = digger("modern", elicits=[answer]) if at == 0 else MockClient()
        texts.append((await client.call((server, "dig"), at=at)).text)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for at in (0, 0, -1, -1):
                nursery.start_soon(call, at)
                await wait_all_tasks_blocked(0.01)
            assert (parked, len(running)) == (2, 2)
            answers.set()
            for event in running:
                await wait_all_tasks_blocked(0.01)
                event.set()
    assert sorted(texts) == ["accept", "accept", "held", "held"]
