"""The tools of group G, which ask in every way that matters to rounds."""

from __future__ import annotations

import trio

from ....server import Context, Server
from ..stage import Stage
from .common import reason_of

NOTE = "contract://note"
"""A resource that changes when `touch` is called."""


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
    async def ask_both(ctx: Context) -> str:
        """Two questions at once."""
        try:
            left, right = await ctx.branch_all(
                lambda child: number_of(child, "Left?"), lambda child: number_of(child, "Right?")
            )
        finally:
            stage.mark(f"ask_both finally {reason_of(ctx)}")
        return f"{left} {right}"

    @server.tool
    async def ask_everything(ctx: Context) -> str:
        """The user, the model and the roots, at once."""
        number, sampled, roots = await ctx.branch_all(
            lambda child: number_of(child, "How many?"),
            lambda child: child.sample("hello"),
            lambda child: child.roots(),
        )
        return f"{number} {sampled.text} {' '.join(root.uri for root in roots)}"


def add_tools_that_ask_on(server: Server, stage: Stage) -> None:
    @server.tool
    async def ask_and_wait(ctx: Context) -> str:
        """A question; then the gate `answered`."""
        answer = await number_of(ctx, "Which?")
        stage.mark("answered")
        await stage.gate("answered")
        return answer

    @server.tool
    async def ask_forever(ctx: Context) -> str:
        """Ask again and again, until the gate `enough` opens."""

        async def stop(asking: trio.CancelScope) -> None:
            await stage.gate("enough")
            asking.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stop, nursery.cancel_scope)
            while True:
                await number_of(ctx, "Again?")
        return "enough"


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
