"""The client and the server of this house together: what one offers the other finds, reads, keeps and hears of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
import trio
from serving import served

from trio_mcp import Client, Context, Server
from trio_mcp.client import ResponseCache

LIMIT = 10.0


def library() -> Server:
    server = Server("library", page_size=2, list_ttl=60)

    @server.resource("config://app", ttl=60)
    async def app() -> str:
        return "dark"

    @server.resource("users://{user_id}/profile")
    async def profile(user_id: str) -> str:
        return f"profile of {user_id}"

    @server.prompt
    async def review(code: str, ctx: Context) -> str:
        answer = await ctx.elicit("In which language?", str)
        return f"Review this {answer.content if answer.action == 'accept' else '?'}: {code}"

    @server.complete(prompt="review", argument="code")
    async def codes(value: str) -> list[str]:
        return [value + "!"]

    for name in "abcde":
        server.add_tool(tool_named(name), name=name)
    return server


def tool_named(name: str) -> Any:
    async def tool(text: Annotated[str, "what to say"]) -> str:
        return f"{name}: {text}"

    return tool


@pytest.fixture(params=["legacy", "2026-07-28"])
def mode(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["memory", "http"])
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@asynccontextmanager
async def connected(server: Server, transport: str, mode: str, **more: Any) -> AsyncIterator[Client]:
    with trio.fail_after(LIMIT):
        if transport == "memory":
            async with Client.connect(server, mode=mode, **more) as client:
                yield client
        else:
            async with served(server) as url, Client.connect(url, mode=mode, **more) as client:
                yield client


async def test_a_tool_may_end_its_response_early_and_the_client_comes_back_for_the_rest() -> None:
    server = library()
    seen: list[float] = []

    @server.tool
    async def slow(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.end_stream(retry=0.1)
        await ctx.progress(2)
        return "done"

    async with connected(server, "http", "legacy") as client:
        result = await client.call_tool("slow", on_progress=lambda report: seen.append(report.progress))
    assert (result.text, seen) == ("done", [1, 2])


async def test_what_is_kept_is_read_once_until_the_server_says_that_it_changed() -> None:
    server = library()
    async with connected(server, "memory", "2026-07-28", cache=ResponseCache()) as client:
        assert len(await client.list_tools()) == 5
        server.remove_tool("a")
        assert len(await client.list_tools()) == 5  # for as long as the server allowed
        async with client.listen(tools=True) as changes:
            server.remove_tool("b")
            await changes.__anext__()
            assert [tool.name for tool in await client.list_tools()] == list("cde")
