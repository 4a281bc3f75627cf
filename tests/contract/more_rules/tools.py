"""The tools of these rules, which ask the user and the model in every way."""

from __future__ import annotations

from typing import Literal

import trio
from pydantic import BaseModel

from trio_mcp.errors import ToolError
from trio_mcp.server import Context, Server
from trio_mcp.testing.contract import Stage, contract_tools
from trio_mcp.testing.contract.subjects.common import reason_of
from trio_mcp.testing.contract.subjects.faults import SECRET
from trio_mcp.testing.contract.subjects.offers import CLICK, PIXEL
from trio_mcp.types import AudioContent, ImageContent, ModelHint, ModelPreferences, SamplingMessage, TextContent


@contract_tools
def add_sampling_tools(server: Server, stage: Stage) -> None:
    @server.tool
    async def ask_in_detail(ctx: Context) -> str:
        """Ask the model with every parameter."""
        answer = await ctx.sample(
            messages=[said("user", "Hello"), said("assistant", "Yes?"), said("user", "A line, please")],
            max_tokens=77,
            system_prompt="Be brief.",
            temperature=0.5,
            stop_sequences=["END"],
            model_preferences=ModelPreferences(hints=[ModelHint(name="small")], speed_priority=1.0),
            metadata={"vendor": {"seed": 1}},
        )
        return f"{answer.model} {answer.stop_reason} {answer.text}"

    @server.tool
    async def show_model(sound: bool, ctx: Context) -> str:
        """Show the model a block, and return the kinds of blocks in its answer."""
        seen = (
            AudioContent(data=CLICK, mime_type="audio/wav")
            if sound
            else ImageContent(data=PIXEL, mime_type="image/png")
        )
        content = (await ctx.sample(messages=[SamplingMessage(role="user", content=seen)])).message.content
        return ", ".join(block.type for block in (content if isinstance(content, list) else [content]))


def look_up(word: str) -> str:
    """Look a word up."""
    return word


@contract_tools
def add_tools_for_models(server: Server, _stage: Stage) -> None:
    @server.tool
    async def ask_with_tools(ctx: Context) -> str:
        """Offer the model tools until it calls none."""
        answer = await ctx.sample("A line, please", tools=[look_up], tool_choice="auto")
        while answer.tool_calls:
            ctx.add_tool_results({call.id: look_up(str(call.input["word"])) for call in answer.tool_calls})
            answer = await ctx.sample(tools=[look_up])
        return answer.text


def said(role: Literal["user", "assistant"], text: str) -> SamplingMessage:
    return SamplingMessage(role=role, content=TextContent(text=text))


# forms


class Everything(BaseModel):
    """A form with a field of each kind that every revision with forms has."""

    name: str
    row: int
    weight: float
    window: bool
    meal: Literal["fish", "none"]


class Wish(BaseModel):
    """A form without required fields."""

    wish: str = "nothing"


@contract_tools
def add_forms(server: Server, _stage: Stage) -> None:
    @server.tool
    async def fill_in(ctx: Context) -> str:
        """Ask for a field of each kind."""
        answer = await ctx.elicit("Tell all.", Everything)
        return answer.content.model_dump_json() if answer.action == "accept" else answer.action

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


# errors and branches


async def leave_quietly() -> None:
    """Be cancelled, and raise an error during the cleanup."""
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError(SECRET)


@contract_tools
def add_failing_branches(server: Server, stage: Stage) -> None:
    @server.tool
    async def mixed() -> str:
        """Raise an error in the clean-up of its cancellation."""
        await leave_quietly()
        return "never"

    @server.tool
    async def split_and_fail(ctx: Context) -> str:
        """Let one branch fail while another waits."""

        async def waits(_: Context) -> None:
            try:
                await trio.sleep_forever()
            finally:
                stage.mark("sibling finally")

        async def fails(_: Context) -> None:
            raise ToolError("one branch failed")

        await ctx.branch_all(waits, fails)
        return "never"

    @server.tool
    async def ask_often(times: int, ctx: Context) -> str:
        """Ask `times` questions at once."""

        async def asks(child: Context) -> None:
            await child.elicit("One of many?", int)

        async with ctx.branches() as group:
            for _ in range(times):
                group.start(asks)
        return "never"

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
