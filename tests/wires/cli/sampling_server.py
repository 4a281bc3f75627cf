"""A server whose tools ask a model and a user; `pid` says which process it is."""

from __future__ import annotations

import os

import trio

from trio_mcp import Context, Server

server = Server("sampling")


@server.tool
async def think(ctx: Context) -> str:
    """Ask the model."""
    return (await ctx.sample("Say something.")).text


@server.tool
async def meet(ctx: Context) -> str:
    """Ask the user."""
    return str((await ctx.elicit("Who are you?", str)).content)


@server.tool
async def pid() -> int:
    """Return the number of this process."""
    return os.getpid()


@server.tool
async def has_key() -> bool:
    """Return whether this process knows the key of an API."""
    return "OPENAI_API_KEY" in os.environ


@server.tool
async def wait(seconds: float) -> str:
    """Wait."""
    await trio.sleep(seconds)
    return "waited"


if __name__ == "__main__":
    server.run()
