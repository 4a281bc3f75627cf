"""A server for the command's tests: tools that ask, take all kinds of arguments, fail, and hang."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Literal

import trio
from pydantic import BaseModel, Field

from trio_mcp import Context, Server, ToolError

server = Server("forms", version="1.0")


class Person(BaseModel):
    name: str = Field(min_length=2, description="As in the passport")
    age: int = Field(ge=18, le=99)
    email: Annotated[str, Field(json_schema_extra={"format": "email"})]
    meal: Literal["fish", "beans"] = "beans"
    extras: list[Literal["bag", "lounge", "wifi"]] = Field(min_length=1)
    window: bool = True
    note: str | None = None


@server.tool
async def register(ctx: Context) -> str:
    """Ask who travels."""
    answer = await ctx.elicit("Who travels?", Person)
    return answer.content.model_dump_json() if answer.action == "accept" else f"it was {answer.action}"


@server.tool
async def ask_model(ctx: Context) -> str:
    """Ask the model."""
    return (await ctx.sample("Say something.", system_prompt="Be brief.")).text


@server.tool
async def take(text: str, number: float, flag: bool = False, anything: object = None) -> str:
    """Show the arguments."""
    return json.dumps([text, number, flag, anything])


@server.tool
async def fail() -> str:
    """Answer with an error."""
    raise ToolError("the tank is empty")


@server.tool
async def escape(ctx: Context) -> str:
    """Try to rule the terminal."""
    await ctx.log("warning", "\x1b[2Jlog")
    return "\x1b[31mred"


@server.tool
async def hang() -> str:
    """Never end, and report a cancellation."""
    print("hanging", file=sys.stderr)
    try:
        await trio.sleep_forever()
    finally:
        print("cancelled at the server", file=sys.stderr)


if __name__ == "__main__":
    server.run()
