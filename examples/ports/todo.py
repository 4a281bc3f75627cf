"""A to-do list for each user, in memory.

    python examples/ports/todo.py

The usual version with FastMCP has a global variable, or uses `ctx.set_state` for each session. Here, the lists are the state of
the lifespan, by principal, so that a user has the same list in every session; `Provide` gives a tool the list of its caller.
Without authentication, as on stdio, there is one list.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, TypeAlias

from trio_mcp import Context, Provide, Server, ToolError


@dataclass
class Item:
    number: int
    text: str
    done: bool = False


@dataclass
class Todos:
    """The list of one user."""

    items: dict[int, Item] = field(default_factory=dict)
    added: int = 0


Lists: TypeAlias = defaultdict[str | None, Todos]


@asynccontextmanager
async def lifespan(_server: Server) -> AsyncIterator[Lists]:
    yield defaultdict(Todos)


async def list_of_the_caller(ctx: Context[Lists]) -> Todos:
    return ctx.state[ctx.request.principal]


Mine: TypeAlias = Annotated[Todos, Provide(list_of_the_caller)]

server = Server("todo", lifespan=lifespan)


@server.tool
async def add(text: str, mine: Mine) -> Item:
    """Add an item to the user's list."""
    mine.added += 1
    item = mine.items[mine.added] = Item(mine.added, text)
    server.resource_updated("todo://items")
    return item


@server.tool
async def complete(number: int, mine: Mine) -> Item:
    """Mark an item as done."""
    if number not in mine.items:
        raise ToolError(f"There is no item {number}.")
    mine.items[number].done = True
    server.resource_updated("todo://items")
    return mine.items[number]


@server.tool
async def clear(ctx: Context[Lists], mine: Mine) -> str:
    """Remove the items that are done, after the user has agreed."""
    done = [number for number, item in mine.items.items() if item.done]
    answer = await ctx.elicit(f"Remove {len(done)} items?")
    if answer.action != "accept":
        return "Nothing was removed."
    for number in done:
        mine.items.pop(number, None)  # another call may have removed it while the user read
    server.resource_updated("todo://items")
    return f"Removed {len(done)} items."


@server.resource("todo://items", mime_type="application/json")
async def items(mine: Mine) -> list[Item]:
    """The user's list."""
    return list(mine.items.values())


@server.prompt
async def plan(day: str, mine: Mine) -> str:
    """A prompt that plans a day."""
    left = "\n".join(f"- {item.text}" for item in mine.items.values() if not item.done)
    return f"Plan {day} so that there is time for all of this:\n{left}"


if __name__ == "__main__":
    server.run()
