"""A server with one tool in memory, and what comes back when the tool is called once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from peer import text_of
from talk import Json, Legacy, Talk, offering, play, talk_to
from trio.testing import wait_all_tasks_blocked

from trio_mcp import Server
from trio_mcp.session import CallTree

Function = Callable[..., Any]


@asynccontextmanager
async def talk_with(function: Function, **options: Any) -> AsyncIterator[Talk]:
    """Connect to a server that offers this function as its only tool."""
    server = Server("tester")
    server.add_tool(function, **options)
    async with talk_to(server) as talk:
        yield talk


async def result_of(
    function: Function, arguments: Json | None = None, *, legacy: bool = False, name: str = "tool", **options: Any
) -> Json:
    """Call the function as a tool, in the newest revision of either era; return the result as JSON."""
    async with talk_with(function, name=name, **options) as talk:
        if not legacy:
            return await talk.result(talk.leg(name, arguments))
        await talk.initialize()
        return await talk.result(talk.call(name, arguments))


async def success_of(function: Function, arguments: Json | None = None, **options: Any) -> str:
    """Return the text of the result, which is no error."""
    result = await result_of(function, arguments, **options)
    assert not result.get("isError"), result
    return text_of(result)


async def failure_of(function: Function, arguments: Json | None = None, **options: Any) -> str:
    """Return the text of the result, which is an error."""
    result = await result_of(function, arguments, **options)
    assert result.get("isError"), result
    return text_of(result)


async def answered(function: Function, era: type[Legacy], *answers: Json, **options: Any) -> tuple[str, list[Json]]:
    """Call the function as a tool, and answer each of its questions; return the text of the result, and what was asked."""
    server = Server("tester")
    server.add_tool(function, name="tool", **options)
    asked: list[Json] = []
    async with play(server, era) as player:
        await player.call("tool")
        for answer in answers:
            asked.append(await player.question())
            await player.answer(answer)
        return await player.text(), asked


async def call_of(function: Function, era: type[Legacy], arguments: Json | None = None, **options: Any) -> CallTree:
    """The tree of a call of a server with these options, when nothing more happens by itself."""
    async with play(offering(function, **options), era) as player:
        await player.call(function.__name__, arguments)
        await wait_all_tasks_blocked()
        (call,) = player.talk.service.tree().calls
    return call
