"""The elicitation demo: everything that a form can ask.

    python examples/ports/elicitation.py

In FastMCP 4.1, `ctx.elicit` fails for clients of 2026-07-28; these tools work for all. FastMCP's `AcceptedElicitation`,
`DeclinedElicitation` and `CancelledElicitation` are `Accepted`, `Declined` and `Dismissed` here, and `.data` is `.content`.
`ctx.elicit.strict` returns the content, or ends the tool.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeAlias

from pydantic import BaseModel, Field

from trio_mcp import Context, Server, Titled

server = Server("survey")


Topping: TypeAlias = Literal["cheese", "ham", "olives"]


class Drink(Enum):
    COFFEE = "coffee"
    TEA = "tea"


@dataclass
class Task:
    title: str
    priority: Literal["low", "medium", "high"] = "medium"


class Meeting(BaseModel):
    topic: str = Field(min_length=3)
    minutes: int = Field(default=30, ge=15, le=120, multiple_of=15)
    online: bool = False


@server.tool
async def greet(ctx: Context) -> str:
    """Ask for a name: one string."""
    answer = await ctx.elicit("What is your name?", str)
    if answer.action == "accept":
        return f"Hello, {answer.content}!"
    return "Hello!" if answer.action == "decline" else "The question was closed."


@server.tool
async def order(ctx: Context) -> str:
    """Ask for one of several values: an enum, strings, and strings with labels."""
    drink = await ctx.elicit.strict("What do you want?", Drink)
    size = await ctx.elicit.strict("Which size?", Titled({"s": "Small", "l": "Large"}))
    milk = await ctx.elicit.strict("Milk?", ["none", "cow", "oat"])
    return f"{drink.value}, {size}, milk: {milk}"


@server.tool
async def create_task(ctx: Context) -> Task:
    """Ask for a dataclass."""
    return await ctx.elicit.strict("What is to be done?", Task)


@server.tool
async def plan_meeting(ctx: Context) -> Meeting | None:
    """Ask for a model, and then only for a yes."""
    meeting = await ctx.elicit.strict("Which meeting?", Meeting)
    sure = await ctx.elicit(f"Meet about {meeting.topic} for {meeting.minutes} minutes?")
    return meeting if sure.action == "accept" else None


@server.tool
async def toppings(ctx: Context) -> list[Topping]:
    """Ask for several of several values."""
    return await ctx.elicit.strict("Which toppings?", list[Topping])


@server.tool
async def guess(number: int, ctx: Context) -> str:
    """Ask until it is right: a question in a loop."""
    hint = "Which number between 1 and 100?"
    for attempt in range(1, 8):
        guessed = await ctx.elicit.strict(hint, int)
        if guessed == number:
            return f"Right, after {attempt} attempts."
        hint = f"More than {guessed}." if guessed < number else f"Less than {guessed}."
    return f"It was {number}."


if __name__ == "__main__":
    server.run()
