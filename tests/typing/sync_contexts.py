"""What type checkers infer of the methods of a `SyncContext`: values, and no coroutines; checked and never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from pydantic import BaseModel

from trio_mcp import Accepted, Caller, Elicit, Server, SyncContext, Titled
from trio_mcp.server import Sampled, ToolLoopResult
from trio_mcp.types import GetPromptResult, JsonValue, ReadResourceResult, Root

server = Server("typed")


class Seat(BaseModel):
    number: int


@dataclass
class Database:
    name: str


SEAT = Elicit("seat", Seat)
KEYED = Elicit("keyed", Seat, context=Seat)


@server.tool(elicits=[SEAT, KEYED])
def asks(city: str, ctx: SyncContext[Database]) -> str:
    seat = ctx.elicit(f"Which seat to {city}?", Seat)
    if seat.action == "accept":
        assert_type(seat, Accepted[Seat])
        assert_type(seat.content, Seat)
    keyed = ctx.elicit("?", KEYED, context=Seat(number=1))
    if keyed.action == "accept":
        assert_type(keyed.context, Seat)
    assert_type(ctx.elicit.strict("?", Seat), Seat)
    assert_type(ctx.elicit.strict("?", SEAT), Seat)
    assert_type(ctx.elicit.strict("?", bool), bool)
    assert_type(ctx.elicit.strict("?", ["a", "b"]), str)
    assert_type(ctx.elicit.strict("?", Titled({"a": "A"})), str)
    assert_type(ctx.elicit.strict("?", int | None), JsonValue)
    size = ctx.elicit.with_retry("?", ["s", "m"], max_attempts=2)
    if size.action == "accept":
        assert_type(size.content, str)
    page = ctx.elicit_url("Connect", "https://example.com")
    return page.action


def samples(ctx: SyncContext) -> None:
    assert_type(ctx.sample("Hello").text, str)
    assert_type(ctx.sample("Seat?", returns=Seat).data, Seat)
    assert_type(ctx.sample_schema("Seat?", Seat).data, Seat)
    assert_type(ctx.sample_tools("Look", [asks]), Sampled)
    assert_type(ctx.run_tool_loop("Look", [asks]), ToolLoopResult)
    assert_type(ctx.roots(), list[Root])


def rest(ctx: SyncContext[Database]) -> None:
    async def wait() -> int:
        return 5

    assert_type(ctx.step("length", len, "text"), int)
    assert_type(ctx.step("wait", wait), int)
    assert_type(ctx.read_resource("a://b"), ReadResourceResult)
    assert_type(ctx.get_prompt("greet"), GetPromptResult)
    assert_type(ctx.state, Database)
    assert_type(ctx.caller, Caller | None)
    ctx.progress(1, total=2)
    ctx.info("text")
