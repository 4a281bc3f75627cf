"""A server on the official Python SDK with resources, prompts, changes and an event store.

Run it as `official_library.py stdio`, or as `official_library.py http PORT`.
"""

from __future__ import annotations

import itertools
import socket
import sys

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    JSONRPCMessage,
    PromptReference,
    ResourceTemplateReference,
)

RETRY = 100
"""Milliseconds after which a client may come back."""

server = MCPServer("library", version="1.0", log_level="WARNING")


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


def serve_http(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as listener:
        sys.stderr.write(f"library serves MCP at http://127.0.0.1:{listener.getsockname()[1]}/mcp\n")
        app = server.streamable_http_app(event_store=Log(), retry_interval=RETRY)
        config = uvicorn.Config(app, log_level="warning", ws="none", timeout_graceful_shutdown=2)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        serve_http(int(sys.argv[2]))
    else:
        server.run()
