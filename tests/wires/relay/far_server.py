"""A server whose process can be ended by a call, and which can be served alone or composed: `far_server.py [http PORT]`.

It speaks both eras, or that in `FAR_ERA`."""

from __future__ import annotations

import os
import sys

import trio

from trio_mcp import Context, Server
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.session import MessageFacts

server = Server("far")
ERA = os.environ.get("FAR_ERA")


@server.message_middleware
def speak_one_era(message: MessageFacts) -> None:
    if ERA == "legacy" and message.method == "server/discover":
        raise RemoteProtocolError("what?", code=-32601)
    if ERA == "modern" and message.method == "initialize":
        raise RemoteProtocolError("too old", code=-32022, data={"supported": ["2026-07-28"], "requested": "x"})


@server.tool
async def process_id() -> int:
    return os.getpid()


@server.tool
async def end() -> str:
    os._exit(7)


@server.tool
async def talk(ctx: Context) -> str:
    """Ask the user and the model, and report."""
    await ctx.progress(1, 2)
    await ctx.log("warning", "careful")
    name = await ctx.elicit("Your name?", str)
    line = await ctx.sample("Say hello.")
    return f"{name.content}: {line.text}"


@server.tool
async def hold(ctx: Context) -> str:
    await ctx.progress(1)
    await trio.sleep_forever()
    return "never"


@server.tool
async def change() -> str:
    server.resource_updated("note://one")
    server.add_tool(lambda: "", name="another")
    return "changed"


@server.tool
async def running() -> list[str]:
    """Return the calls that run."""
    return sorted(actor.name.split(" ")[0] for service in server.services for actor in service.supervisor.actors)


@server.resource("note://one")
async def note() -> str:
    return "one"


@server.prompt
async def greet(name: str) -> str:
    return f"Greet {name}."


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
