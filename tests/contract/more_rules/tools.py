"""The tools of these rules, which ask the user and the model in every way."""

from __future__ import annotations

import trio
from pydantic import BaseModel

from trio_mcp.server import Context, Server
from trio_mcp.testing.contract import Stage, contract_tools

# forms


class Wish(BaseModel):
    """A form without required fields."""

    wish: str = "nothing"


@contract_tools
def add_forms(server: Server, _stage: Stage) -> None:
    @server.tool
    async def wish(ctx: Context) -> str:
        """Ask with a form without required fields."""
        answer = await ctx.elicit("What else?", Wish)
        return answer.content.wish if answer.action == "accept" else answer.action


# rounds

NOTE = "contract://note"
"""A resource that changes when `touch` is called."""


@contract_tools
def add_rounds_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def ask_twice(ctx: Context) -> str:
        """One question, and then another; marks each answer, and reports progress in each leg."""
        answers = []
        for number, question in enumerate(("First?", "Second?"), 1):
            await ctx.progress(number, message=question)
            answers.append(await number_of(ctx, question))
            stage.mark(f"answer {number}")
        return " ".join(answers)

    @server.tool
    async def ask_everything(ctx: Context) -> str:
        """The user, the model and the roots, at once."""
        number, sampled, roots = await ctx.branch_all(
            lambda child: number_of(child, "How many?"),
            lambda child: child.sample("hello"),
            lambda child: child.roots(),
        )
        return f"{number} {sampled.text} {' '.join(root.uri for root in roots)}"


@contract_tools
def add_tools_that_ask_on(server: Server, stage: Stage) -> None:
    @server.tool
    async def ask_and_wait(ctx: Context) -> str:
        """A question; then the gate `answered`."""
        answer = await number_of(ctx, "Which?")
        stage.mark("answered")
        await stage.gate("answered")
        return answer


@contract_tools
def add_note(server: Server, stage: Stage) -> None:
    @server.resource(NOTE)
    async def note() -> str:
        """It changes when `touch` is called."""
        return str(stage.count("touched"))

    @server.tool
    async def touch() -> str:
        """Change the note."""
        stage.mark("touched")
        server.resource_updated(NOTE)
        return "touched"


async def number_of(ctx: Context, question: str) -> str:
    answer = await ctx.elicit(question, int)
    return str(answer.content) if answer.action == "accept" else answer.action


# what is left running


@contract_tools
def add_what_is_left_running(server: Server, stage: Stage) -> None:
    async def linger() -> None:
        try:
            await trio.sleep_forever()
        finally:
            stage.mark("lingerer finally")

    @server.tool
    async def leave_a_nursery() -> str:
        """End with a task in a nursery that was not closed."""
        nursery = await trio.open_nursery().__aenter__()
        nursery.start_soon(linger)
        await trio.lowlevel.checkpoint()
        return "left"
