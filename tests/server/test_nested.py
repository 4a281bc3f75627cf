"""A handler reads resources and prompts of the server that it belongs to, in branches of its call."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import trio
from connected import connected
from trio.testing import MockClock, assert_checkpoints

from trio_mcp import Client, Context, PeerError, ResourceNotFound, Server, accept
from trio_mcp.errors import BranchElicitNotAllowed, BranchLimit
from trio_mcp.types import CallToolResult


@pytest.fixture
def server() -> Server:
    server = Server("library", version="1")

    @server.resource("library://books/{number}")
    async def book(number: int, ctx: Context) -> str:
        if number == 9:
            raise ResourceNotFound(f"library://books/{number}")
        if number == 8:
            raise LookupError("eaten by mice")
        if number == 7:
            answer = await ctx.elicit("Which edition?", str)
            return answer.content if answer.action == "accept" else answer.action
        if number == 6:
            return (await ctx.sample("Summarize.")).text
        return f"book {number} at depth {ctx.depth}"

    @server.resource("library://slow", timeout=5)
    async def slow() -> str:
        await trio.sleep(math.inf)
        return ""

    @server.prompt
    def recommend(taste: Literal["dark", "funny"]) -> str:
        return f"A {taste} book."

    return server


async def call(server: Server, mode: str, tool: Any, **options: Any) -> CallToolResult:
    """Register a tool and call it."""
    server.add_tool(tool, name="tool", **options)
    async with connected(
        server, mode, on_elicit=lambda _: accept(value="first"), on_sample=lambda _: "short"
    ) as client:
        return await client.call_tool("tool")


async def text_at(ctx: Context, uri: str) -> str:
    (contents,) = (await ctx.read_resource(uri)).contents
    return contents.text


async def test_a_tool_reads_a_resource_as_a_branch_of_its_call_and_renders_a_prompt(server: Server, mode: str) -> None:
    async def tool(ctx: Context) -> str:
        (message,) = (await ctx.get_prompt("recommend", {"taste": "dark"})).messages
        return f"{message.content.text} {await text_at(ctx, 'library://books/1')}"

    assert (await call(server, mode, tool)).text == "A dark book. book 1 at depth 1"


async def test_resources_that_ask_can_be_read_side_by_side(server: Server, mode: str) -> None:
    async def edition(child: Context) -> str:
        return await text_at(child, "library://books/7")

    async def tool(ctx: Context) -> str:
        return " ".join([*await ctx.branch_all(edition, edition), await edition(ctx)])

    assert (await call(server, mode, tool)).text == "first first first"


@pytest.mark.parametrize(
    ("uri", "bare"), [("library://books/9", False), ("other://books/1", False), ("other://books/1", True)]
)
async def test_a_missing_resource_is_not_found(server: Server, mode: str, uri: str, bare: bool) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(ResourceNotFound) as caught:
            await ctx.read_resource(uri)
        return caught.value.uri

    assert (await call(Server("bare") if bare else server, mode, tool)).text == uri


async def test_a_missing_resource_that_the_tool_does_not_catch_is_its_error_result(server: Server, mode: str) -> None:
    async def tool(ctx: Context) -> str:
        return await text_at(ctx, "other://books/1")

    result = await call(server, mode, tool)
    assert result.is_error
    assert "other://books/1" in result.text


async def test_a_rejected_request_is_the_error_that_a_client_gets(server: Server, mode: str) -> None:
    async def tool(ctx: Context) -> None:
        for reading in (
            ctx.get_prompt("unheard of"),
            ctx.get_prompt("recommend", {"taste": "sweet"}),
            ctx.read_resource("library://books/x"),
        ):
            with pytest.raises(PeerError) as caught:
                await reading
            assert caught.value.code == -32602

    assert not (await call(server, mode, tool)).is_error


async def test_an_exception_of_the_function_propagates_unchanged(server: Server, mode: str) -> None:
    async def tool(ctx: Context) -> None:
        with pytest.raises(LookupError, match="mice"):
            await ctx.read_resource("library://books/8")

    assert not (await call(server, mode, tool)).is_error


async def test_a_resource_has_its_own_timeout(server: Server, mode: str, autojump_clock: MockClock) -> None:
    async def tool(ctx: Context) -> str:
        with pytest.raises(BranchLimit) as caught:
            await ctx.read_resource("library://slow")
        return f"{caught.value.kind} {caught.value.limit:g}"

    assert (await call(server, mode, tool)).text == "time 5"


@pytest.mark.parametrize(
    ("number", "options", "kind"),
    [(7, {"allow_elicit": False}, None), (6, {"token_budget": 0}, "tokens"), (1, {"max_depth": 1}, "depth")],
    ids=["ask", "sample", "branch"],
)
async def test_a_resource_may_do_what_its_reader_may(
    server: Server, mode: str, number: int, options: Any, kind: str | None
) -> None:
    async def read(child: Context) -> None:
        with pytest.raises((BranchElicitNotAllowed, BranchLimit)) as caught:
            await child.read_resource(f"library://books/{number}")
        assert getattr(caught.value, "kind", None) == kind

    async def tool(ctx: Context) -> None:
        await ctx.branch(read, **options)

    assert not (await call(server, mode, tool)).is_error


@pytest.mark.parametrize("wrong", [3, None, b"library://books/1"], ids=repr)
async def test_a_uri_or_a_name_of_another_type_is_a_type_error(server: Server, mode: str, wrong: Any) -> None:
    async def tool(ctx: Context) -> None:
        with pytest.raises(TypeError):
            await ctx.read_resource(wrong)
        for name, arguments in ((wrong, {}), ("recommend", {"taste": wrong})):
            with pytest.raises(TypeError):
                await ctx.get_prompt(name, arguments)

    assert not (await call(server, mode, tool)).is_error


async def test_a_read_is_a_checkpoint() -> None:
    # Resources that read each other may never wait for anything else.
    server = Server("circle")

    @server.resource("text://hi")
    async def hi() -> str:
        return "hi"

    @server.tool
    async def read(ctx: Context) -> None:
        with assert_checkpoints():
            await ctx.read_resource("text://hi")

    async with Client.connect(server) as client:
        assert not (await client.call_tool("read")).is_error
