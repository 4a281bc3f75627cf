"""Four tools that ask in the middle: once, in a loop, in branches, and until the answer fits.

    python examples/checkout.py                      serves them on stdio
    python examples/checkout.py http 8000            serves them at http://127.0.0.1:8000/mcp

`charge` writes to the file that CHECKOUT_LEDGER names. Start the server with TRIO_MCP_KEYS set, kill it while `charge` waits
for its answer, start it again, and answer: the call resumes, and the ledger shows one charge.
"""

from __future__ import annotations

import os
import sys

from pydantic import BaseModel, Field

from trio_mcp import Context, Server
from trio_mcp.types import ToolAnnotations

server = Server("checkout", version="1.0", instructions="Charges, polls, votes and quizzes; all of them ask.")

ASKS_ONLY = ToolAnnotations(read_only_hint=True)
"""A tool that changes nothing may run again from its top, so it survives the end of its process."""


class Person(BaseModel):
    age: int = Field(ge=0, le=150)


@server.tool(resume="replay")
async def charge(amount: int, ctx: Context) -> str:
    """Charge an amount, then ask for its confirmation."""
    await ctx.step("charge", write, f"charged {amount}")
    answer = await ctx.elicit(f"{amount} euros were charged. Do you confirm?", bool)
    if answer.action != "accept" or not answer.content:
        return f"Charged {amount} euros, not confirmed."
    write("confirmed")
    return f"Charged {amount} euros, confirmed."


@server.tool(annotations=ASKS_ONLY)
async def poll(n: int, ctx: Context) -> str:
    """Ask n times, one question after the other."""
    liked = 0
    for number in range(1, n + 1):
        liked += await likes(f"Do you like number {number}?", ctx)
    return f"{liked} of {n} were liked."


@server.tool(annotations=ASKS_ONLY)
async def vote(n: int, ctx: Context) -> str:
    """Ask n voters at once."""
    votes = await ctx.branch_all(*[lambda voter: likes("Are you in favour?", voter)] * n)
    return f"{sum(votes)} of {n} are in favour."


@server.tool(annotations=ASKS_ONLY)
async def quiz(ctx: Context) -> str:
    """Ask for an age, and repeat it."""
    answer = await ctx.elicit("How old are you?", Person)
    return f"You are {answer.content.age}." if answer.action == "accept" else "You did not say."


async def likes(question: str, ctx: Context) -> bool:
    answer = await ctx.elicit(question, bool)
    return answer.action == "accept" and answer.content


def write(line: str) -> None:
    with open(os.environ["CHECKOUT_LEDGER"], "a") as ledger:
        ledger.write(f"{line}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        server.run("http", port=int(sys.argv[2]))
    else:
        server.run()
