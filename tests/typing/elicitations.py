"""What type checkers infer of `ctx.elicit`; checked and never run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, assert_type

from pydantic import BaseModel
from typing_extensions import TypedDict

from trio_mcp import Accepted, Context, Elicit, Server, Titled
from trio_mcp.server import ElicitExchange
from trio_mcp.types import JsonObject, JsonValue

server = Server("typed")


class Seat(BaseModel):
    number: int


class Board(BaseModel):
    cells: list[str]


@dataclass
class Move:
    cell: int


class Pair(TypedDict):
    left: str


class Level(Enum):
    LOW = "low"


SEAT = Elicit("seat", Seat)
PICK = Elicit("pick", Move, context=Board)
LEVEL = Elicit("level", ["low", "high"])
SURE = Elicit("sure", None, context=Board)


@server.tool(elicits=[SEAT, PICK, LEVEL, SURE])
async def typed(ctx: Context) -> str:
    seat = await ctx.elicit("?", Seat)
    if seat.action == "accept":
        assert_type(seat, Accepted[Seat])
        assert_type(seat.content, Seat)
        assert_type(seat.context, None)
        assert_type(seat.exchange, ElicitExchange[None])
    assert_type(await ctx.elicit.strict("?", Seat), Seat)
    assert_type(await ctx.elicit.strict("?", Move), Move)
    assert_type(await ctx.elicit.strict("?", Pair), Pair)
    assert_type(await ctx.elicit.strict("?", Level), Level)
    assert_type(await ctx.elicit.strict("?", int), int)
    assert_type(await ctx.elicit.strict("?", ["a", "b"]), str)
    assert_type(await ctx.elicit.strict("?", Titled({"a": "A"})), str)
    assert_type(await ctx.elicit.strict("?", list[Literal["a", "b"]]), list[Literal["a", "b"]])
    assert_type(await ctx.elicit.strict("?", list[Level]), list[Level])
    assert_type(await ctx.elicit.strict("?", int | None), JsonValue)
    assert_type(await ctx.elicit.strict("?", SEAT), Seat)
    assert_type(await ctx.elicit.strict("?", LEVEL), str)
    confirmed = await ctx.elicit("Sure?")
    if confirmed.action == "accept":
        assert_type(confirmed.content, None)
    return await keyed(ctx, Board(cells=[]))


async def keyed(ctx: Context, board: Board) -> str:
    pick = await ctx.elicit("?", PICK, context=board)
    if pick.action == "accept":
        assert_type(pick.content, Move)
        assert_type(pick.context, Board)
        assert_type(pick.exchange.with_arguments(seen), ElicitExchange[Board])
    assert_type(await ctx.elicit.strict("?", PICK, context=board), Move)
    again = await ctx.elicit.with_retry("?", PICK, context=board, max_attempts=2, on_decline="error")
    if again.action == "accept":
        assert_type(again.context, Board)
    size = await ctx.elicit.with_retry("?", ["s", "m"], on_decline="return")
    if size.action == "accept":
        assert_type(size.content, str)
    return "typed"


def seen(board: Board) -> JsonObject:
    return {"cells": len(board.cells)}


async def pages(ctx: Context) -> str:
    visit = await ctx.elicit_url("Connect", lambda name: f"https://example.com/{name}", done=lambda: True)
    if visit.action == "accept":
        assert_type(visit.elicitation_id, str)
    return visit.action
