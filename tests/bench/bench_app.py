"""The server of these benchmarks: `bench_app.py stdio`, or `bench_app.py http PORT`, which serves WebSocket too."""

from __future__ import annotations

import sys
import time

import trio

from trio_mcp import Context, Server

server = Server("bench", version="1.0")
ended: dict[str, float] = {}


@server.tool
async def echo(text: str) -> str:
    """Echo the text."""
    return text


@server.tool
async def hold(key: str, ctx: Context) -> str:
    """Say that it runs, and wait until it is cancelled; remember when its clean-up began (seconds, the machine's clock)."""
    await ctx.progress(1)
    try:
        await trio.sleep_forever()
    finally:
        ended[key] = time.monotonic()


@server.tool
async def book(to: str, ctx: Context) -> str:
    """Book seats, as many as the user says."""
    answer = await ctx.elicit(f"How many to {to}?", int)
    return f"{answer.content} to {to}"


@server.tool
async def ask(ctx: Context) -> None:
    """Ask for a number."""
    await ctx.elicit("How many?", int)


@server.tool
async def when(key: str) -> float:
    """When the call with this key was cleaned up; it waits for that."""
    while key not in ended:  # noqa: ASYNC110  an event for each would cost the call that is measured
        await trio.sleep(0.001)
    return ended.pop(key)


@server.tool
async def stuck(ctx: Context) -> str:
    """Let no cancel through."""
    await ctx.progress(1)
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()
    return "never"


@server.tool
async def flood(ctx: Context) -> str:
    """Talk for as long as somebody listens, or should."""
    done = 0
    while True:
        done += 1
        await ctx.progress(done, message="x" * 1000)


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
