"""User code about results that type checkers must accept, and whose types must be these; nothing runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type, cast

from trio_mcp import Audio, Client, Context, File, Image, Server, ToolResult
from trio_mcp.types import CallToolResult, ContentBlock, JsonValue, TextContent

server = Server("types")


@dataclass
class Hit:
    title: str
    score: float


@server.tool(annotations={"readOnlyHint": True}, max_result=10_000)
async def search(query: str) -> list[Hit]:
    return [Hit(query, 1.0)]


@server.tool
async def chart() -> tuple[str, Image]:
    return "A chart.", Image("chart.png")


@server.tool
async def parts() -> list[ContentBlock]:
    return [TextContent(text="A chart."), Image(data=b"\x89PNG", format="png").block()]


@server.tool
async def mixed() -> list[str | Image | Audio | File]:
    return ["Three files.", Image("a.png"), Audio("a.wav"), File("a.csv")]


async def calls(client: Client, cities: list[str], filters: dict[str, object]) -> None:
    """The arguments of a call are any values: what is not JSON is an error of the call."""
    await client.call_tool("search", {"cities": cities, "limit": 3})
    await client.call_tool("search", filters)


@server.tool(task="later", resume="replay")
async def asks_first(ctx: Context) -> int:
    year = await ctx.elicit.strict("Which year?", int)
    assert_type(await ctx.become_task(), None)
    return year


@server.tool
async def both() -> ToolResult:
    return ToolResult(structured_content={"a": 1})


async def main(client: Client) -> None:
    result = await client.call_tool("search", {"query": "x"})
    assert_type(result, CallToolResult)
    assert_type(result.is_error, bool)
    assert_type(result.data, JsonValue)
    assert_type(result.check(), CallToolResult)
    assert_type(await client.call_tool("search", raise_on_error=True, timeout=5), CallToolResult)
    hits = await client.call_tool("search", {"query": "x"}, returns=list[Hit], timeout=5)
    assert_type(hits, list[Hit])
    print(hits[0].title.upper())
    assert_type(await client.call_tool("total", returns=int), int)
    # A union is not a class, so that a type checker needs an annotation.
    assert_type(await client.call_tool("total", returns=int | None), object)
    assert_type(await client.call_tool("total", returns=cast("type[int | None]", int | None)), int | None)
