"""Mistakes in the options of a sample that type checkers find."""

from __future__ import annotations

from trio_mcp import Context


def search(words: str) -> str:
    return words


async def right(ctx: Context) -> None:
    await ctx.sample("?", tools=[search], tool_choice="required")
    await ctx.sample("?", returns=int)


async def wrong(ctx: Context) -> None:
    await ctx.sample("?", tools=[search], returns=int)  # type: ignore[call-overload]
    await ctx.sample("?", max_token=5)  # type: ignore[call-overload]
    await ctx.sample("?", tool_choice="any")  # type: ignore[call-overload]
