"""A server for the command's tests: offers of every kind, and a tool that reports, logs and asks."""

from __future__ import annotations

from collections.abc import Mapping

from trio_mcp import Context, Server

server = Server("offers", version="2.0", instructions="Use it well.")


@server.tool
async def work(ctx: Context) -> str:
    """Work, and ask in the middle."""
    await ctx.progress(1, 3, "first \x1b[2Jstep")
    await ctx.log("warning", "look out")
    answer = await ctx.elicit("Go on?", bool)
    await ctx.progress(3, 3, "last step")
    return f"done: {answer.action}"


@server.resource("note://today", mime_type="text/plain")
def today() -> str:
    """The note of today."""
    return "Buy \x1b[31mlamps."


@server.resource("logo://small", mime_type="image/png")
def logo() -> bytes:
    """A picture."""
    return b"\x89PNG\x00"


@server.resource("note://{day}", mime_type="text/plain")
def note(day: str) -> str:
    """The note of a day."""
    return f"Nothing on {day}."


@server.prompt
async def plan(day: str, ctx: Context, style: str = "short") -> str:
    """Plan a day."""
    answer = await ctx.elicit("With a break?", bool)
    return f"Plan {day}, {style}, {answer.action}."


DAYS = ["Monday", "Tuesday"]


@server.complete(resource="note://{day}", argument="day")
def note_days(value: str) -> list[str]:
    return [day for day in DAYS if day.startswith(value)]


@server.complete(prompt="plan", argument="day")
def plan_days(value: str, arguments: Mapping[str, str]) -> list[str]:
    return [f"{day} ({arguments['style']})" for day in DAYS if day.startswith(value)]
