"""The client and the server of this house together: what one offers the other finds, reads, keeps and hears of."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
import trio
from serving import IMPORTS, ROOT, served

from trio_mcp import Client, Context, Server, accept
from trio_mcp.client import Change, ResponseCache
from trio_mcp.types import PromptReference, TextContent

LIMIT = 10.0
CHILD_LIMIT = 30.0


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


async def test_everything_that_is_offered_is_found_and_works(transport: str, mode: str) -> None:
    def answer(_params: Any) -> Any:
        return accept(value="rust")

    async with connected(library(), transport, mode, on_elicit=answer) as client:
        assert [tool.name for tool in await client.list_tools()] == list("abcde")
        assert [tool.name async for tool in client.iter_tools()] == list("abcde")
        assert [each.uri for each in await client.list_resources()] == ["config://app"]
        assert [each.uri_template for each in await client.list_resource_templates()] == ["users://{user_id}/profile"]
        [contents] = (await client.read_resource("users://ada/profile")).contents
        assert getattr(contents, "text", None) == "profile of ada"
        rendered = await client.get_prompt("review", {"code": "1 + 1"})
        assert rendered.messages[0].content == TextContent(text="Review this rust: 1 + 1")
        assert (await client.complete(PromptReference(name="review"), "code", "x")).values == ["x!"]


async def test_a_listener_hears_of_what_changes(transport: str, mode: str) -> None:
    server = library()
    async with connected(server, transport, mode) as client:
        async with client.listen(tools=True, uris=["config://app"]) as changes:
            server.remove_tool("a")
            assert await changes.__anext__() == Change("tools")
            server.resource_updated("config://app")
            assert await changes.__anext__() == Change("updated", "config://app")


async def test_over_stdio_a_listener_hears_of_every_kind_of_change(mode: str) -> None:
    """A real child process: a session has the same channel for this as for everything else."""
    command = [sys.executable, str(ROOT / "examples" / "everything_server.py")]
    watched = "test://watched-resource"
    heard: list[Change] = []
    with trio.fail_after(CHILD_LIMIT):
        async with Client.connect(command, mode=mode, env=IMPORTS) as client:
            async with client.listen(tools=True, prompts=True, uris=[watched]) as changes:
                await client.call_tool("test_trigger_tool_change")
                heard.append(await anext(changes))
                await client.call_tool("test_trigger_prompt_change")
                heard.append(await anext(changes))
                await client.call_tool("test_update_watched_resource", {"text": "new"})
                heard.append(await anext(changes))
    assert heard == [Change("tools"), Change("prompts"), Change("updated", watched)]


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
