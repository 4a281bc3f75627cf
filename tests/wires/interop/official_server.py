"""A server on the official Python SDK (`mcp`): `official_server.py stdio`, `official_server.py http PORT`, or `... sse PORT`."""

from __future__ import annotations

import os
import socket
import sys
from typing import Annotated, Literal

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Image, ListRoots, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import CreateMessageResult, ListRootsResult, ResourceLink, SamplingMessage, TextContent
from pydantic import BaseModel
from starlette.applications import Starlette

server = MCPServer("official", title="The official one", instructions="Ask away.", version="9.8", log_level="WARNING")


class Place(BaseModel):
    name: str
    height: float


class Seat(BaseModel):
    seat: Literal["aisle", "window"]
    bags: int = 0


class Sure(BaseModel):
    sure: bool


# what a tool can return


@server.tool()
async def echo(text: str) -> str:
    """Say it back."""
    return text


@server.tool()
async def place(name: str, height: float = 1.5) -> Place:
    """A place, as structure."""
    return Place(name=name, height=height)


@server.tool()
async def picture() -> Image:
    """Some bytes that call themselves an image."""
    return Image(data=b"\x89PNG and so on", format="png")


@server.tool()
async def link() -> ResourceLink:
    """Where to read more."""
    return ResourceLink(type="resource_link", uri="file:///notes.txt", name="notes", mime_type="text/plain")


@server.tool()
async def refuse(why: str) -> str:
    """Fail in words that are meant for the model."""
    raise ToolError(why)


@server.tool()
async def strike() -> str:
    """Fail as a protocol error."""
    raise MCPError(code=-32050, message="not today", data={"until": "noon"})


# what a tool can ask


def which_seat() -> Elicit[Seat]:
    return Elicit("Which seat?", Seat)


def really(seat: Annotated[Seat, Resolve(which_seat)]) -> Elicit[Sure]:
    return Elicit(f"The {seat.seat}, really?", Sure)


@server.tool()
async def book(seat: Annotated[Seat, Resolve(which_seat)], sure: Annotated[Sure, Resolve(really)]) -> str:
    """Ask for a seat, then whether that is meant."""
    return f"{seat.seat} {seat.bags} {sure.sure}"


@server.tool()
async def offer(seat: Annotated[ElicitationResult[Seat], Resolve(which_seat)]) -> str:
    """Ask for a seat; a no is an answer too."""
    return seat.data.seat if isinstance(seat, AcceptedElicitation) else seat.action


def poem() -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text="A poem, please."))
    return Sample([message], max_tokens=20, system_prompt="Rhyme.")


@server.tool()
async def recite(answer: Annotated[CreateMessageResult, Resolve(poem)]) -> str:
    """Ask the client's model."""
    assert isinstance(answer.content, TextContent)
    return f"{answer.model}: {answer.content.text}"


def where() -> ListRoots:
    return ListRoots()


@server.tool()
async def folders(roots: Annotated[ListRootsResult, Resolve(where)]) -> list[str]:
    """Ask for the client's folders."""
    return [f"{root.name}={root.uri}" for root in roots.roots]


# what a tool can tell


@server.tool()
async def count(n: int, ctx: Context) -> str:
    """Report progress n times."""
    for done in range(1, n + 1):
        await ctx.report_progress(done, n, f"step {done}")
    return "counted"


@server.tool()
async def talk(ctx: Context) -> str:
    """Log on two levels."""
    await ctx.info("said", logger_name="official")
    await ctx.error({"said": "aloud"})
    return "talked"


# how a call can end

report_ended, ended_calls = anyio.create_memory_object_stream[None](100)


@server.tool()
async def hold(ctx: Context) -> str:
    """Report progress once, and wait to be cancelled."""
    try:
        await ctx.report_progress(1)
        await anyio.sleep_forever()
    finally:
        report_ended.send_nowait(None)
    return "never"


@server.tool()
async def ended() -> str:
    """Wait for the next `hold` to end."""
    await ended_calls.receive()
    return "cancelled"


@server.tool()
async def leave() -> str:
    """End the whole server in the middle of a call."""
    os._exit(3)


def serve_http(app: Starlette, path: str, port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        sys.stderr.write(f"official serves MCP at http://127.0.0.1:{listener.getsockname()[1]}{path}\n")
        config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=2)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        serve_http(server.streamable_http_app(), "/mcp", int(sys.argv[2]))
    elif sys.argv[1] == "sse":
        serve_http(server.sse_app(), "/sse", int(sys.argv[2]))
    else:
        server.run()
