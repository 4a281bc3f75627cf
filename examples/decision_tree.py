"""A decision tree: the options are explored at the same time, each in a branch with a separate conversation and budget.

    python examples/decision_tree.py                 serves it on stdio
    python examples/decision_tree.py http 8000       serves it at http://127.0.0.1:8000/mcp

    decide ── option ──┬── best case      (asks the model)
           │           ├── worst case     (asks the model)
           │           └── rating         (asks the user)
           └─ option ── ...

A modern client receives the questions of all options together; a legacy client asks its user one at a time.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from pydantic import BaseModel, Field

from trio_mcp import Context, Elicit, Server
from trio_mcp.errors import BranchLimit

server = Server("decisions", version="1.0", instructions="Explores the options of a decision with the user.")

TOKENS = 2000
"""What the samples of one option may use."""


class Rating(BaseModel):
    """The form."""

    stars: int = Field(ge=1, le=5, description="1: I would hate that. 5: I would love it.")


@dataclass
class Option:
    """A node of the tree. It has no stars if the user did not rate it."""

    name: str
    best: str
    worst: str
    stars: int | None


@dataclass
class Decision:
    """The tree, with the user's favourite first. It has no choice if the user rated no option."""

    choice: str | None
    options: list[Option]


RATING = Elicit("rating", Rating)


@server.tool(elicits=[RATING], requires={"elicitation", "sampling"}, resume="replay", max_depth=2)
async def decide(
    question: str, options: Annotated[list[str], Field(min_length=2, max_length=5)], ctx: Context
) -> Decision:
    """Explore the options of a decision, and let the user rate each."""
    async with ctx.branches() as group:
        nodes = [
            group.start(partial(explore, name), token_budget=TOKENS, system_prompt=f"The decision is: {question}")
            for name in options
        ]
    found = sorted((node.value for node in nodes), key=lambda option: option.stars or 0, reverse=True)
    return Decision(choice=found[0].name if found[0].stars else None, options=found)


async def explore(name: str, ctx: Context) -> Option:
    """Look at the best and the worst case of an option at the same time, and then let the user rate it."""
    best, worst = await ctx.branch_all(
        partial(imagine, f"What is the best that can come of: {name}?"),
        partial(imagine, f"What is the worst that can come of: {name}?"),
    )
    rating = await ctx.elicit(f"{name}\nAt best: {best}\nAt worst: {worst}\nHow do you like it?", RATING)
    return Option(name, best, worst, rating.content.stars if rating.action == "accept" else None)


async def imagine(prompt: str, ctx: Context) -> str:
    """Return one sentence of the model, or that its tokens are used up: the user can still rate the option."""
    try:
        return (await ctx.sample(f"{prompt} Answer in one sentence.", max_tokens=200)).text
    except BranchLimit:
        return "(not explored)"


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
