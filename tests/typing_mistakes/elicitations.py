"""Mistakes in the context of a declared question that type checkers find."""

from __future__ import annotations

from pydantic import BaseModel

from trio_mcp import Context, Elicit


class Board(BaseModel):
    cells: list[str]


SEAT = Elicit("seat", str)
PICK = Elicit("pick", int, context=Board)


async def right(ctx: Context) -> None:
    await ctx.elicit("?", PICK, context=Board(cells=[]))
    await ctx.elicit("?", SEAT)


async def wrong(ctx: Context) -> None:
    await ctx.elicit("?", PICK, context="no board")  # type: ignore[misc]
    await ctx.elicit("?", SEAT, context=3)  # type: ignore[misc]
