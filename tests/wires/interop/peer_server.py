"""Our server with a tool for each thing that another client has to get right: `peer_server.py stdio`, `... http`, `... sse`."""

from __future__ import annotations

import sys
from typing import Literal

import trio
from pydantic import BaseModel, Field

from trio_mcp import Context, Server, ToolError, ToolResult
from trio_mcp.types import EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents

server = Server("peer", version="1.2.3", title="The peer", instructions="Call anything.")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="

report_ended, ended_calls = trio.open_memory_channel[str](100)


class Place(BaseModel):
    name: str
    height: float
    tags: list[str] = Field(default_factory=list)


class Trip(BaseModel):
    """Every kind of field that a form may have."""

    traveller: str = Field(min_length=1, title="Who travels")
    nights: int = Field(ge=1, le=30)
    budget: float = 100.5
    breakfast: bool = True
    seat: Literal["aisle", "window"] = "aisle"
    extras: list[Literal["wifi", "meal", "bag"]] = Field(default_factory=list)


# what a tool can return


@server.tool
async def text(value: str) -> str:
    """Say it back."""
    return value


@server.tool
async def number(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def place() -> Place:
    """A mountain."""
    return Place(name="Žižkov ⛰", height=263.5, tags=["hill"])


@server.tool
async def picture() -> ImageContent:
    """One pixel."""
    return ImageContent(data=PIXEL, mime_type="image/png")


@server.tool
async def link() -> ResourceLink:
    """Where to read more."""
    return ResourceLink(uri="file:///notes.txt", name="notes", mime_type="text/plain", size=12)


@server.tool
async def several() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Blocks of three kinds."""
    resource = TextResourceContents(uri="file:///a.txt", text="inside", mime_type="text/plain")
    return [
        TextContent(text="first"),
        ImageContent(data=PIXEL, mime_type="image/png"),
        EmbeddedResource(resource=resource),
    ]


@server.tool
async def whole() -> ToolResult:
    """Everything said by the tool itself."""
    return ToolResult(content=[TextContent(text="seen")], structured_content={"seen": True}, meta={"example.com/k": 1})


@server.tool
async def nothing() -> None:
    """No content at all."""


@server.tool
async def refuse(why: str) -> str:
    """Fail in words that are meant for the model."""
    raise ToolError(why)


@server.tool
async def crash() -> str:
    """Fail with an unexpected exception."""
    raise RuntimeError("the password is hunter2")


# what a tool can ask


@server.tool
async def plan_trip(ctx: Context) -> str:
    """Fill in a form."""
    answer = await ctx.elicit("Where to?", Trip)
    if answer.action != "accept":
        return answer.action
    trip = answer.content
    return f"{trip.traveller} {trip.nights} {trip.budget} {trip.breakfast} {trip.seat} {','.join(trip.extras)}"


async def ask_number(ctx: Context) -> int:
    answer = await ctx.elicit("A number?", int)
    return answer.content if answer.action == "accept" else 0


@server.tool
async def add_up(ctx: Context) -> int:
    """Ask for two numbers side by side, then for a third."""
    first, second = await ctx.branch_all(ask_number, ask_number)
    return first + second + await ask_number(ctx)


@server.tool
async def think(ctx: Context, about: str) -> str:
    """Ask the client's model."""
    sampled = await ctx.sample(f"Think about {about}.", max_tokens=50, system_prompt="Be brief.")
    return f"{sampled.model}: {sampled.text}"


def height(of: str) -> str:
    """Return how high something is."""
    return f"{of}: {len(of)} m"


@server.tool
async def measure(ctx: Context) -> str:
    """Ask the client's model, which may call a tool, and then for its answer as a number."""
    answer = await ctx.sample("Which is higher, a hut or a tower?", tools=[height], tool_choice="required")
    ctx.add_tool_results({call.id: height(str(call.input["of"])) for call in answer.tool_calls})
    await ctx.sample(tools=[height])
    total = await ctx.sample("What is the sum?", returns=int)
    return f"{total.data} after {len(ctx.messages)} messages"


@server.tool
async def folders(ctx: Context) -> list[str]:
    """Ask for the client's folders."""
    return [f"{root.name}={root.uri}" for root in await ctx.roots()]


# what a tool can tell


@server.tool
async def count(n: int, ctx: Context) -> str:
    """Report progress n times."""
    for done in range(1, n + 1):
        await ctx.progress(done, n, f"step {done}")
    return "counted"


@server.tool
async def talk(ctx: Context) -> str:
    """Log on three levels."""
    await ctx.log("debug", "whisper", logger="peer")
    await ctx.log("warning", {"said": "aloud"}, logger="peer")
    await ctx.log("error", "shout")
    return "talked"


# how a call can end


@server.tool
async def hold(ctx: Context) -> str:
    """Report progress once, and wait to be cancelled."""
    try:
        await ctx.progress(1)
        await trio.sleep_forever()
    finally:
        reason = ctx.cancel_reason
        report_ended.send_nowait("?" if reason is None else reason.value)
    return "never"


@server.tool
async def ask_for_ever(ctx: Context) -> str:
    """Ask something, and say how the wait for its answer ended."""
    try:
        await ctx.elicit("Are you there?", bool)
    finally:
        reason = ctx.cancel_reason
        report_ended.send_nowait("answered" if reason is None else reason.value)
    return "answered"


@server.tool
async def ended() -> str:
    """Wait for the next `hold` or `ask_for_ever` to end: why it did."""
    return await ended_calls.receive()


if __name__ == "__main__":
    match sys.argv[1]:
        case "stdio":
            server.run("stdio")
        case "http":
            server.run("http", port=0)
        case "sse":
            server.run("http", port=0, path=None, sse_path="/sse")
