"""A server on the official Python SDK (`mcp`): `official_server.py stdio`, `... http` or `... sse`."""

from __future__ import annotations

import itertools
import socket
import sys
from typing import Annotated, Literal

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, Elicit, Image, ListRoots, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPError
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    CreateMessageResult,
    JSONRPCMessage,
    ListRootsResult,
    PromptReference,
    ResourceLink,
    ResourceTemplateReference,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel
from starlette.applications import Starlette

RETRY = 100
"""Milliseconds after which a client may come back."""

server = MCPServer("official", title="The official one", instructions="Ask away.", version="9.8", log_level="WARNING")


class Place(BaseModel):
    name: str
    height: float


class Seat(BaseModel):
    seat: Literal["aisle", "window"]
    bags: int = 0


class Sure(BaseModel):
    sure: bool


# resources, prompts and suggestions


@server.resource("config://app", name="app", mime_type="text/plain")
def app() -> str:
    """A fixed one."""
    return "dark"


@server.resource("blob://logo", name="logo", mime_type="image/png")
def logo() -> bytes:
    """Bytes."""
    return b"\x89PNG"


@server.resource("users://{user_id}/profile", name="profile")
def profile(user_id: str) -> str:
    """One for each user."""
    return f"profile of {user_id}"


@server.prompt(title="Code review")
def review(code: str, language: str = "python") -> str:
    """Ask for a review."""
    return f"Review this {language}: {code}"


@server.completion()
async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion | None:
    known = ["python", "pyret", "rust"] if isinstance(ref, PromptReference) else ["ada", "bob"]
    settled = (context.arguments or {}) if context is not None else {}
    values = [value for value in known if value.startswith(argument.value)]
    return Completion(values=[f"{value}{settled.get('code', '')}" for value in values])


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


@server.tool()
async def change(ctx: Context) -> str:
    """Say that everything changed, to clients of either era."""
    await ctx.notify_tools_changed()
    await ctx.notify_resource_updated("config://app")
    await ctx.session.send_tool_list_changed()
    return "changed"


@server.tool()
async def nap(ctx: Context) -> str:
    """End the response early, and answer when the client has come back or could have."""
    await ctx.report_progress(1)
    await ctx.close_sse_stream()
    await anyio.sleep(RETRY / 1000 * 3)
    await ctx.report_progress(2)
    return "rested"


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


class Log(EventStore):
    """Every event since the start."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._events: dict[str, tuple[str, JSONRPCMessage | None]] = {}

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        event_id = str(next(self._numbers))
        self._events[event_id] = (stream_id, message)
        return event_id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        if last_event_id not in self._events:
            return None
        stream, _ = self._events[last_event_id]
        for event_id, (of, message) in list(self._events.items()):
            if of == stream and message is not None and int(event_id) > int(last_event_id):
                await send_callback(EventMessage(message, event_id))
        return stream


def serve_http(app: Starlette, path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sys.stderr.write(f"official serves MCP at http://127.0.0.1:{listener.getsockname()[1]}{path}\n")
        config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=2)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    match sys.argv[1]:
        case "http":
            serve_http(server.streamable_http_app(event_store=Log(), retry_interval=RETRY), "/mcp")
        case "sse":
            serve_http(server.sse_app(), "/sse")
        case "stdio":
            server.run()
